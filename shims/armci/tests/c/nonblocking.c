/* Nonblocking transfers: under handles, without, several under one, and handles in every state. */
#include "check.h"

enum { COUNT = 64, LENGTH = 3000, ROWS = 30 };

static int me, ranks;
static void *parts[RANKS_MAX];
static char source[COUNT][LENGTH], back[COUNT][LENGTH];

static char *place_of(int target, int origin, int which)
{
    return at(parts[target], ((long)origin * COUNT + which) * LENGTH);
}

static void prepare(unsigned seed)
{
    for (int which = 0; which < COUNT; which++) {
        fill(source[which], seed + (unsigned)which, LENGTH);
    }
    memset(back, 0, sizeof back);
}

/* Many handles are open at once, and are waited for in another order. */
static void many_handles(void)
{
    armci_hdl_t handles[COUNT];
    prepare((unsigned)me);
    for (int which = 0; which < COUNT; which++) {
        ARMCI_INIT_HANDLE(&handles[which]);
        int target = which % ranks;
        CHECK_EQUAL(ARMCI_NbPut(source[which], place_of(target, me, which), LENGTH, target, &handles[which]), 0);
    }
    for (int which = COUNT - 1; which >= 0; which--) {
        CHECK_EQUAL(ARMCI_Wait(&handles[which]), 0);
    }
    ARMCI_AllFence();
    /* A handle may be used again after it was waited for, without being initialised. */
    for (int which = 0; which < COUNT; which++) {
        int target = which % ranks;
        CHECK_EQUAL(ARMCI_NbGet(place_of(target, me, which), back[which], LENGTH, target, &handles[which]), 0);
    }
    for (int which = 0; which < COUNT; which++) {
        CHECK_EQUAL(ARMCI_Wait(&handles[which]), 0);
        /* To wait again changes nothing. */
        CHECK_EQUAL(ARMCI_Wait(&handles[which]), 0);
    }
    CHECK(memcmp(source, back, sizeof source) == 0);
    settle();
}

static void implicit_handles(void)
{
    prepare((unsigned)me + 100);
    for (int which = 0; which < COUNT; which++) {
        CHECK_EQUAL(ARMCI_NbPut(source[which], place_of(which % ranks, me, which), LENGTH, which % ranks, NULL), 0);
    }
    CHECK_EQUAL(ARMCI_WaitAll(), 0);
    ARMCI_AllFence();
    for (int which = 0; which < COUNT; which++) {
        CHECK_EQUAL(ARMCI_NbGet(place_of(which % ranks, me, which), back[which], LENGTH, which % ranks, NULL), 0);
    }
    /* One process after the other; each wait completes at least its own. */
    for (int target = ranks - 1; target >= 0; target--) {
        CHECK_EQUAL(ARMCI_WaitProc(target), 0);
        for (int which = target; which < COUNT; which += ranks) {
            CHECK(memcmp(source[which], back[which], LENGTH) == 0);
        }
    }
    CHECK_EQUAL(ARMCI_WaitAll(), 0);
    CHECK_EQUAL(ARMCI_WaitAll(), 0);
    settle();
}

static void tests_come_true(void)
{
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    prepare((unsigned)me + 200);
    int target = next_rank();
    CHECK_EQUAL(ARMCI_NbPut(source[0], place_of(target, me, 0), LENGTH, target, &handle), 0);
    int answer;
    while ((answer = ARMCI_Test(&handle)) != 0) {
        CHECK_EQUAL(answer, 1);
    }
    CHECK_EQUAL(ARMCI_Test(&handle), 0);
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    ARMCI_Fence(target);
    CHECK_EQUAL(ARMCI_NbGet(place_of(target, me, 0), back[0], LENGTH, target, &handle), 0);
    while (ARMCI_Test(&handle) != 0) {
    }
    CHECK(memcmp(source[0], back[0], LENGTH) == 0);
    settle();
}

static void handles_that_name_nothing(void)
{
    armci_hdl_t never;
    ARMCI_INIT_HANDLE(&never);
    CHECK_EQUAL(ARMCI_Wait(&never), 0);
    CHECK_EQUAL(ARMCI_Test(&never), 0);
    CHECK_EQUAL(ARMCI_Wait(&never), 0);
    CHECK_EQUAL(ARMCI_WaitProc(next_rank()), 0);
}

/* Patches and accumulates. */
static void every_kind(void)
{
    armci_hdl_t handle;
    int dense[1] = {LENGTH / ROWS}, apart[1] = {LENGTH / ROWS + 20}, count[2] = {LENGTH / ROWS, ROWS};
    int target = next_rank();
    char *place = place_of(target, me, 10);
    ARMCI_INIT_HANDLE(&handle);
    prepare((unsigned)me + 300);
    CHECK_EQUAL(ARMCI_NbPutS(source[0], dense, place, apart, count, 1, target, &handle), 0);
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    ARMCI_Fence(target);
    CHECK_EQUAL(ARMCI_NbGetS(place, apart, back[0], dense, count, 1, target, &handle), 0);
    /* The arrays may be reused at once. */
    memset(dense, 0, sizeof dense);
    memset(count, 0, sizeof count);
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    CHECK(memcmp(source[0], back[0], LENGTH) == 0);

    long *numbers = (long *)(void *)place_of(target, me, 20), ones[100], sums[100], scale = 3;
    for (int index = 0; index < 100; index++) {
        ones[index] = index;
    }
    memset(back[1], 0, LENGTH);
    CHECK_EQUAL(ARMCI_Put(back[1], numbers, sizeof ones, target), 0);
    void *from[1], *to[1];
    armci_giov_t list;
    from[0] = ones;
    to[0] = numbers;
    list.src_ptr_array = from;
    list.dst_ptr_array = to;
    list.ptr_array_len = 1;
    list.bytes = sizeof ones;
    int whole[1] = {sizeof ones}, adds = 2;
    CHECK_EQUAL(ARMCI_NbAccS(ARMCI_ACC_LNG, &scale, ones, NULL, numbers, NULL, whole, 0, target, &handle), 0);
    CHECK_EQUAL(ARMCI_NbAccV(ARMCI_ACC_LNG, &scale, &list, 1, target, &handle), 0);
#ifndef WITH_MPI
    CHECK_EQUAL(ARMCI_NbAcc(ARMCI_ACC_LNG, &scale, ones, numbers, sizeof ones, target, &handle), 0);
    adds++;
#endif
    scale = 99;
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    CHECK_EQUAL(ARMCI_Get(numbers, sums, sizeof sums, target), 0);
    for (int index = 0; index < 100; index++) {
        CHECK_EQUAL(sums[index], adds * 3 * index);
    }
    settle();
}

/* Sums of one word each, under a handle and without one: to different words, and many to one. */
static void small_sums(void)
{
    enum { WORDS = 64, TIMES = 50 };
    armci_hdl_t handle;
    int target = next_rank(), word[1] = {sizeof(long)};
    long *numbers = (long *)(void *)place_of(target, me, 20), own[WORDS], sums[WORDS], scale = 2;
    ARMCI_INIT_HANDLE(&handle);
    memset(sums, 0, sizeof sums);
    CHECK_EQUAL(ARMCI_Put(sums, numbers, sizeof sums, target), 0);
    for (int index = 0; index < WORDS; index++) {
        armci_hdl_t *under = index % 2 == 0 ? &handle : NULL;
        own[index] = index + me;
        CHECK_EQUAL(ARMCI_NbAccS(ARMCI_ACC_LNG, &scale, &own[index], NULL, numbers + index, NULL, word, 0, target, under), 0);
    }
    for (int times = 0; times < TIMES; times++) {
        CHECK_EQUAL(ARMCI_NbAccS(ARMCI_ACC_LNG, &scale, &own[1], NULL, numbers + 1, NULL, word, 0, target, NULL), 0);
    }
    /* What the scale is by now says nothing about them. */
    scale = 99;
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    CHECK_EQUAL(ARMCI_WaitProc(target), 0);
    CHECK_EQUAL(ARMCI_Get(numbers, sums, sizeof sums, target), 0);
    for (int index = 0; index < WORDS; index++) {
        CHECK_EQUAL(sums[index], 2 * own[index] * (index == 1 ? 1 + TIMES : 1));
    }
    settle();
}

/* Some bytes, none, and a megabyte, under one handle. */
static void several_under_one_handle(void)
{
    enum { LARGE = 1 << 20 };
    void *large[RANKS_MAX];
    armci_hdl_t handle;
    segment(large, LARGE + 64);
    char *out = (char *)allocate(LARGE), *in = (char *)allocate(LARGE);
    int target = next_rank();
    fill(out, (unsigned)me + 400, LARGE);
    ARMCI_INIT_HANDLE(&handle);
    CHECK_EQUAL(ARMCI_NbPut(out, large[target], LARGE, target, &handle), 0);
    CHECK_EQUAL(ARMCI_NbPut(out, at(large[target], LARGE), 0, target, &handle), 0);
    CHECK_EQUAL(ARMCI_NbPut(out, at(large[target], LARGE), 64, target, &handle), 0);
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    settle();
    CHECK(is_filled(large[me], (unsigned)previous_rank() + 400, LARGE));
    CHECK(is_filled(at(large[me], LARGE), (unsigned)previous_rank() + 400, 64));
    armci_msg_barrier();
    CHECK_EQUAL(ARMCI_NbGet(large[target], in, LARGE / 2, target, &handle), 0);
    CHECK_EQUAL(ARMCI_NbGet(at(large[target], LARGE / 2), in + LARGE / 2, LARGE / 2, target, &handle), 0);
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    CHECK(memcmp(in, out, LARGE) == 0);
    free(out);
    free(in);
    free_segment(large);
}

/* A handle is a value: a copy names the same transfers. */
#ifndef WITH_MPI
static void handles_are_copied(void)
{
    armci_hdl_t first, second;
    ARMCI_INIT_HANDLE(&first);
    prepare((unsigned)me + 500);
    int target = next_rank();
    CHECK_EQUAL(ARMCI_NbPut(source[0], place_of(target, me, 0), LENGTH, target, &first), 0);
    second = first;
    ARMCI_INIT_HANDLE(&first);
    CHECK_EQUAL(ARMCI_Wait(&second), 0);
    CHECK_EQUAL(ARMCI_Wait(&first), 0);
    CHECK_EQUAL(ARMCI_Get(place_of(target, me, 0), back[0], LENGTH, target), 0);
    CHECK(memcmp(source[0], back[0], LENGTH) == 0);
    settle();
}
#endif

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(parts, (size_t)ranks * COUNT * LENGTH);
    many_handles();
    implicit_handles();
    tests_come_true();
    handles_that_name_nothing();
    every_kind();
    small_sums();
    several_under_one_handle();
#ifndef WITH_MPI
    handles_are_copied();
#endif
    free_segment(parts);
    end("nonblocking");
    return 0;
}
