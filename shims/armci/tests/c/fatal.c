/* What ends a job: the first argument names it. The last process does it, the others wait for it in a barrier.
 *
 * Nobody may come to the end of this program. */
#include "check.h"

static int me, ranks, last;
static void *parts[RANKS_MAX];
static char memory[64];

static void outside(void)
{
    ARMCI_Put(memory, at(parts[last], 1L << 40), 8, last);
}

static void past_the_end(void)
{
    ARMCI_Put(memory, at(parts[0], 60), 8, 0);
}

static void before_the_start(void)
{
    ARMCI_Get(at(parts[0], -4), memory, 8, 0);
}

static void a_patch_past_the_end(void)
{
    int dense[1] = {8}, apart[1] = {16}, count[2] = {8, 5};
    ARMCI_PutS(memory, dense, parts[0], apart, count, 1, 0);
}

static void a_list_outside(void)
{
    void *here[2], *there[2];
    armci_giov_t list;
    here[0] = here[1] = memory;
    there[0] = parts[0];
    there[1] = memory;
    list.src_ptr_array = here;
    list.dst_ptr_array = there;
    list.ptr_array_len = 2;
    list.bytes = 8;
    ARMCI_PutV(&list, 1, 0);
}

static void nonblocking_outside(void)
{
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    ARMCI_NbGet(memory, memory, 8, 0, &handle);
    ARMCI_Wait(&handle);
}

static void accumulate_outside(void)
{
    double one = 1;
    ARMCI_Acc(ARMCI_ACC_DBL, &one, memory, memory, 8, 0);
}

static void part_of_an_element(void)
{
    double one = 1;
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    ARMCI_NbAcc(ARMCI_ACC_DBL, &one, memory, parts[0], 12, 0, &handle);
}

static void a_patch_before_the_start(void)
{
    int dense[1] = {8}, back[1] = {-16}, count[2] = {8, 3};
    ARMCI_PutS(memory, dense, parts[0], back, count, 1, 0);
}

static void no_such_accumulate(void)
{
    double one = 1;
    ARMCI_Acc(12345, &one, memory, parts[0], 8, 0);
}

static void rmw_outside(void)
{
    int value = 0;
    ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &value, memory, 1, 0);
}

static void no_such_rmw(void)
{
    int value = 0;
    ARMCI_Rmw(99, &value, parts[0], 1, 0);
}

static void fence_of_nobody(void)
{
    ARMCI_Fence(ranks);
}

static void value_of_nobody(void)
{
    ARMCI_GetValueInt(parts[0], ranks + 3);
}

static void value_outside(void)
{
    ARMCI_GetValueDouble(memory, 0);
}

static void flag_outside(void)
{
    ARMCI_Put_flag(memory, parts[0], 8, (int *)(void *)memory, 1, 0);
}

static void lock_without_mutexes(void)
{
    ARMCI_Lock(0, 0);
}

static void destroy_without_mutexes(void)
{
    ARMCI_Destroy_mutexes();
}

static void message_that_does_not_fit(void)
{
    int length = 0;
    armci_msg_snd(1, memory, 32, last);
    armci_msg_rcv(1, memory, 16, &length, last);
}

static void message_to_nobody(void)
{
    armci_msg_snd(1, memory, 8, ranks);
}

static void no_such_group(void)
{
    ARMCI_Group group = 1234;
    int size = 0;
    ARMCI_Group_size(&group, &size);
}

static void member_of_nothing(void)
{
    ARMCI_Group world;
    ARMCI_Group_get_world(&world);
    ARMCI_Absolute_id(&world, ranks);
}

static void no_such_function(void)
{
    ARMCI_Gpc_release(5);
}

static void node_of_nobody(void)
{
    armci_domain_id(ARMCI_DOMAIN_SMP, ranks);
}

static void no_such_node(void)
{
    armci_domain_nprocs(ARMCI_DOMAIN_SMP, 17);
}

static void iterator_past_the_end(void)
{
    stride_info_t info;
    int count[1] = {8};
    armci_stride_info_init(&info, memory, 0, NULL, count);
    armci_stride_info_next(&info);
    armci_stride_info_next(&info);
}

static void error_with_status_7(void)
{
    ARMCI_Error("the program says so", 7);
}

static void abort_with_status_9(void)
{
    armci_msg_abort(9);
}

static void die(void)
{
    armci_die("the program dies", 11);
}

static void assertion(void)
{
    dassert(1, me == ranks + 1);
}

static void assertion_with_text(void)
{
    dassertp(1, me < 0, ("process %d thinks\n", me));
}

/* All do these. */
static void before_init(void)
{
    ARMCI_Put(memory, memory, 8, 0);
}

static void after_finalize(void)
{
    ARMCI_Finalize();
    ARMCI_Fence(0);
}

static void mutexes_twice(void)
{
    ARMCI_Create_mutexes(1);
    ARMCI_Create_mutexes(1);
}

static void no_such_mutex(void)
{
    ARMCI_Create_mutexes(2);
    if (me == last) {
        ARMCI_Lock(2, 0);
    }
}

static void lock_of_nobody(void)
{
    ARMCI_Create_mutexes(2);
    if (me == last) {
        ARMCI_Lock(0, ranks);
    }
}

static void unlock_of_what_is_free(void)
{
    ARMCI_Create_mutexes(1);
    if (me == last) {
        ARMCI_Unlock(0, 0);
    }
}

static void lock_twice(void)
{
    ARMCI_Create_mutexes(1);
    if (me == last) {
        ARMCI_Lock(0, 0);
        ARMCI_Lock(0, 0);
    }
}

static void free_of_the_middle(void)
{
    ARMCI_Free(at(parts[me], 8));
}

static void free_twice(void)
{
    ARMCI_Free(parts[me]);
    ARMCI_Free(parts[me]);
}

static void use_after_free(void)
{
    ARMCI_Free(parts[me]);
    if (me == last) {
        ARMCI_Put(memory, parts[0], 8, 0);
    }
}

static void no_such_reduction(void)
{
    int value = 0;
    armci_msg_igop(&value, 1, OPERATION("mean"));
}

static void no_such_type(void)
{
    int value = 0;
    armci_msg_gop_scope(SCOPE_ALL, &value, 1, OPERATION("+"), 12);
}

static void no_such_scope(void)
{
    int value = 0;
    armci_msg_gop_scope(1, &value, 1, OPERATION("+"), ARMCI_INT);
}

static void free_of_the_world(void)
{
    ARMCI_Group world;
    ARMCI_Group_get_world(&world);
    ARMCI_Group_free(&world);
}

/* As a program of ARMCI-MPI gives a list by place: 6 pieces of 4 bytes. */
static void a_list_with_bytes_first(void)
{
    void *here[6], *there[6];
    for (int place = 0; place < 6; place++) {
        here[place] = memory + 4 * place;
        there[place] = at(parts[0], 8 * place);
    }
    armci_giov_t list = {here, there, 4, 6};
    ARMCI_PutV(&list, 1, 0);
}

typedef struct {
    const char *name;
    void (*deed)(void);
    int by_all;
} deed_t;

#define BY_LAST(name) {#name, name, 0}
#define BY_ALL(name) {#name, name, 1}

static const deed_t deeds[] = {
    BY_LAST(outside), BY_LAST(past_the_end), BY_LAST(before_the_start), BY_LAST(a_patch_past_the_end),
    BY_LAST(a_list_outside), BY_LAST(a_list_with_bytes_first),
    BY_LAST(nonblocking_outside), BY_LAST(accumulate_outside), BY_LAST(no_such_accumulate),
    BY_LAST(part_of_an_element), BY_LAST(a_patch_before_the_start), BY_LAST(no_such_node),
    BY_LAST(rmw_outside), BY_LAST(no_such_rmw), BY_LAST(fence_of_nobody), BY_LAST(value_of_nobody),
    BY_LAST(value_outside), BY_LAST(flag_outside), BY_LAST(lock_without_mutexes), BY_LAST(destroy_without_mutexes),
    BY_LAST(message_that_does_not_fit), BY_LAST(message_to_nobody), BY_LAST(no_such_group),
    BY_LAST(member_of_nothing), BY_LAST(no_such_function), BY_LAST(node_of_nobody), BY_LAST(iterator_past_the_end),
    BY_LAST(error_with_status_7), BY_LAST(abort_with_status_9), BY_LAST(die), BY_LAST(assertion),
    BY_LAST(assertion_with_text), BY_ALL(before_init), BY_ALL(after_finalize), BY_ALL(mutexes_twice),
    BY_ALL(no_such_mutex), BY_ALL(lock_of_nobody), BY_ALL(unlock_of_what_is_free), BY_ALL(lock_twice),
    BY_ALL(free_of_the_middle), BY_ALL(free_twice), BY_ALL(use_after_free), BY_ALL(no_such_reduction),
    BY_ALL(no_such_type), BY_ALL(no_such_scope), BY_ALL(free_of_the_world),
};
enum { DEEDS = sizeof deeds / sizeof deeds[0] };

int main(int argc, char **argv)
{
    const deed_t *deed = NULL;
    for (int which = 0; which < DEEDS && argc > 1; which++) {
        if (strcmp(argv[1], deeds[which].name) == 0) {
            deed = &deeds[which];
        }
    }
    if (deed == NULL) {
        /* The names, for whoever runs all of them. */
        for (int which = 0; which < DEEDS; which++) {
            printf("%s\n", deeds[which].name);
        }
        return argc > 1;
    }
    armci_msg_init(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    last = ranks - 1;
    if (deed->deed != before_init) {
        ARMCI_Init();
        segment(parts, 64);
    }
    if (deed->by_all || me == last) {
        deed->deed();
    }
    armci_msg_barrier();
    armci_msg_barrier();
    printf("process %d goes on as if nothing had happened\n", me);
    fflush(stdout);
    return 0;
}
