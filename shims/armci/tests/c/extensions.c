/* What ARMCI-MPI has besides: thread levels, access phases, groups by color, mutexes of groups. */
#include "check.h"

#include <armcix.h>

static int me, ranks;
static void *parts[RANKS_MAX];

static void accesses(void)
{
    ARMCI_Access_begin(parts[me]);
    ((long *)parts[me])[0] = 77 + me;
    ARMCI_Access_end(parts[me]);
    armci_msg_barrier();
    CHECK_EQUAL(ARMCI_GetValueLong(parts[next_rank()], next_rank()), 77 + next_rank());
    armci_msg_barrier();
}

static void groups_by_color(void)
{
    ARMCI_Group world, group, copy;
    ARMCI_Group_get_world(&world);
    /* Turned round by the key. */
    CHECK_EQUAL(ARMCIX_Group_split(&world, me % 2, -me, &group), 0);
    int place = -1, size = -1, members = (ranks + 1 - me % 2) / 2;
    CHECK_EQUAL(ARMCI_Group_rank(&group, &place), 0);
    ARMCI_Group_size(&group, &size);
    CHECK_EQUAL(size, members);
    CHECK_EQUAL(place, members - 1 - me / 2);
    for (int other = 0; other < members; other++) {
        CHECK_EQUAL(ARMCI_Absolute_id(&group, other), 2 * (members - 1 - other) + me % 2);
    }
    CHECK_EQUAL(ARMCIX_Group_dup(&group, &copy), 0);
    int copy_place = -1, sum = 1;
    CHECK_EQUAL(ARMCI_Group_rank(&copy, &copy_place), 0);
    CHECK_EQUAL(copy_place, place);
    armci_msg_group_igop(&sum, 1, OPERATION("+"), &copy);
    CHECK_EQUAL(sum, members);
    ARMCI_Group_free(&copy);
    ARMCI_Group_free(&group);
    /* A color below 0 is for those who want no group. */
    CHECK_EQUAL(ARMCIX_Group_split(&world, me == 0 ? -1 : 5, me, &group), 0);
    CHECK_EQUAL(ARMCI_Group_rank(&group, &place) == 0, me != 0);
    ARMCI_Group_free(&group);
    armci_msg_barrier();
}

static void mutexes_of_groups(void)
{
    ARMCI_Group world, group;
    ARMCI_Group_get_world(&world);
    CHECK_EQUAL(ARMCIX_Group_split(&world, me % 2, me, &group), 0);
    int size = 0, place = -1;
    ARMCI_Group_size(&group, &size);
    CHECK_EQUAL(ARMCI_Group_rank(&group, &place), 0);
    memset(parts[me], 0, 256);
    armci_msg_barrier();

    /* Two sets besides the one of all. */
    CHECK_EQUAL(ARMCI_Create_mutexes(1), 0);
    armcix_mutex_hdl_t first = ARMCIX_Create_mutexes_hdl(2, &group);
    armcix_mutex_hdl_t second = ARMCIX_Create_mutexes_hdl(place == 0 ? 1 : 0, &group);
    CHECK(first != NULL && second != NULL && first != second);
    /* The counter is at the group's first member. */
    int home = ARMCI_Absolute_id(&group, 0);
    long *counter = (long *)parts[home] + 3;
    for (int time = 0; time < 30; time++) {
        int owner = size - 1;
        if (time % 3 == 0) {
            while (ARMCIX_Trylock_hdl(first, 1, owner) != 0) {
                ARMCIX_Progress();
            }
        } else {
            ARMCIX_Lock_hdl(first, 1, owner);
        }
        ARMCIX_Lock_hdl(second, 0, 0);
        ARMCI_Lock(0, me);
        CHECK_EQUAL(ARMCI_PutValueLong(ARMCI_GetValueLong(counter, home) + 1, counter, home), 0);
        ARMCI_Fence(home);
        ARMCI_Unlock(0, me);
        ARMCIX_Unlock_hdl(second, 0, 0);
        ARMCIX_Unlock_hdl(first, 1, owner);
    }
    armci_msg_group_barrier(&group);
    CHECK_EQUAL(ARMCI_GetValueLong(counter, home), 30L * size);
    armci_msg_group_barrier(&group);

    /* What is held cannot be taken. */
    if (place == 0) {
        CHECK_EQUAL(ARMCIX_Trylock_hdl(first, 0, 0), 0);
    }
    armci_msg_group_barrier(&group);
    if (place != 0) {
        CHECK(ARMCIX_Trylock_hdl(first, 0, 0) != 0);
    }
    armci_msg_group_barrier(&group);
    if (place == 0) {
        ARMCIX_Unlock_hdl(first, 0, 0);
    }
    CHECK_EQUAL(ARMCIX_Destroy_mutexes_hdl(first), 0);
    CHECK_EQUAL(ARMCIX_Destroy_mutexes_hdl(second), 0);
    CHECK_EQUAL(ARMCI_Destroy_mutexes(), 0);
    ARMCI_Group_free(&group);
    armci_msg_barrier();
}

int main(int argc, char **argv)
{
    /* A thread level of MPI's, the highest one. */
    armci_msg_init(&argc, &argv);
    CHECK_EQUAL(ARMCI_Init_thread(3), 0);
    CHECK_EQUAL(ARMCI_Initialized(), 1);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    CHECK(ranks <= RANKS_MAX);
    segment(parts, 256);
    accesses();
    groups_by_color();
    mutexes_of_groups();
    free_segment(parts);
    char from[10], to[10];
    fill(from, 1, 10);
    ARMCI_Copy(from, to, 10);
    CHECK(is_filled(to, 1, 10));
    end("extensions");
    return 0;
}
