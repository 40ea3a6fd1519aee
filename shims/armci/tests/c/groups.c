/* Groups: who is in them, children, the default group, segments and collectives of groups that overlap. */
#include "check.h"

static int me, ranks;

static void the_group_of_all(void)
{
    ARMCI_Group world;
    int place = -1, size = -1;
    ARMCI_Group_get_world(&world);
    CHECK_EQUAL(ARMCI_Group_rank(&world, &place), 0);
    ARMCI_Group_size(&world, &size);
    CHECK_EQUAL(place, me);
    CHECK_EQUAL(size, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        CHECK_EQUAL(ARMCI_Absolute_id(&world, rank), rank);
    }
    ARMCI_Group standard;
    ARMCI_Group_get_default(&standard);
    CHECK_EQUAL(ARMCI_Absolute_id(&standard, ranks - 1), ranks - 1);
}

/* Makes a group of the list, uses it, and frees it. Only members call. */
static void use_group(int members, int *list)
{
    ARMCI_Group group;
    int place = -1, size = -1;
    ARMCI_Group_create(members, list, &group);
    CHECK_EQUAL(ARMCI_Group_rank(&group, &place), 0);
    ARMCI_Group_size(&group, &size);
    CHECK_EQUAL(size, members);
    CHECK_EQUAL(list[place], me);
    for (int other = 0; other < members; other++) {
        CHECK_EQUAL(ARMCI_Absolute_id(&group, other), list[other]);
    }
    void *parts[RANKS_MAX];
    CHECK_EQUAL(ARMCI_Malloc_group(parts, 8 * RANKS_MAX, &group), 0);
    for (int other = 0; other < members; other++) {
        CHECK_EQUAL(ARMCI_PutValueLong(10000 + me, (long *)parts[other] + place, list[other]), 0);
    }
    ARMCI_AllFence();
    armci_msg_group_barrier(&group);
    int sum = me + 1, expected = 0;
    for (int other = 0; other < members; other++) {
        CHECK_EQUAL(((long *)parts[place])[other], 10000 + list[other]);
        expected += list[other] + 1;
    }
    armci_msg_group_igop(&sum, 1, OPERATION("+"), &group);
    CHECK_EQUAL(sum, expected);
    CHECK_EQUAL(ARMCI_Free_group(parts[place], &group), 0);
    ARMCI_Group_free(&group);
}

static void groups_of_lists(void)
{
    int list[RANKS_MAX], members = 0;
    /* Those with an even number. */
    for (int rank = 0; rank < ranks; rank += 2) {
        list[members++] = rank;
    }
    if (me % 2 == 0) {
        use_group(members, list);
    }
    /* Everybody alone, all at the same time. */
    list[0] = me;
    use_group(1, list);
    /* All but the last, then all but the first: they overlap. */
    if (ranks > 1) {
        for (int skipped = 0; skipped < 2; skipped++) {
            int missing = skipped == 0 ? ranks - 1 : 0;
            members = 0;
            for (int rank = 0; rank < ranks; rank++) {
                if (rank != missing) {
                    list[members++] = rank;
                }
            }
            if (me != missing) {
                use_group(members, list);
            }
        }
    }
    armci_msg_barrier();
}

/* Two halves at the same time, and halves of halves below them. */
static void children(void)
{
    int half = (ranks + 1) / 2, low = me < half, list[RANKS_MAX], members = 0;
    ARMCI_Group outer, inner;
    for (int rank = low ? 0 : half; rank < (low ? half : ranks); rank++) {
        list[members++] = rank;
    }
    ARMCI_Group_create(members, list, &outer);
    int place = -1;
    CHECK_EQUAL(ARMCI_Group_rank(&outer, &place), 0);

    /* Numbers of a child's list are those of its parent. */
    int child_list[RANKS_MAX], child_members = 0;
    for (int rank = place % 2; rank < members; rank += 2) {
        child_list[child_members++] = rank;
    }
    ARMCI_Group_create_child(child_members, child_list, &inner, &outer);
    int inner_place = -1, inner_size = -1;
    CHECK_EQUAL(ARMCI_Group_rank(&inner, &inner_place), 0);
    ARMCI_Group_size(&inner, &inner_size);
    CHECK_EQUAL(inner_size, child_members);
    CHECK_EQUAL(ARMCI_Absolute_id(&inner, inner_place), me);
    double most = me;
    armci_msg_group_dgop(&most, 1, OPERATION("max"), &inner);
    CHECK_EQUAL(most, list[child_list[child_members - 1]]);
    ARMCI_Group_free(&inner);
    ARMCI_Group_free(&outer);
    armci_msg_barrier();
}

/* Calls without a group mean the default group; who this is does not change. */
static void the_default_group(void)
{
    int list[RANKS_MAX], members = 0;
    for (int rank = me % 2; rank < ranks; rank += 2) {
        list[members++] = rank;
    }
    ARMCI_Group world, group, standard;
    ARMCI_Group_get_world(&world);
    ARMCI_Group_create(members, list, &group);
    ARMCI_Group_set_default(&group);
    ARMCI_Group_get_default(&standard);
    int size = 0, place = -1;
    ARMCI_Group_size(&standard, &size);
    CHECK_EQUAL(size, members);
    CHECK_EQUAL(ARMCI_Group_rank(&standard, &place), 0);
    CHECK_EQUAL(armci_msg_me(), me);
    CHECK_EQUAL(armci_msg_nproc(), ranks);

    int sum = 1;
    armci_msg_igop(&sum, 1, OPERATION("+"));
    CHECK_EQUAL(sum, members);
    armci_msg_barrier();
    ARMCI_Barrier();
    void *parts[RANKS_MAX];
    CHECK_EQUAL(ARMCI_Malloc(parts, 64), 0);
    int next = (place + 1) % members;
    CHECK_EQUAL(ARMCI_PutValueInt(me, parts[next], list[next]), 0);
    ARMCI_Barrier();
    CHECK_EQUAL(*(int *)parts[place], list[(place + members - 1) % members]);
    ARMCI_Barrier();
    CHECK_EQUAL(ARMCI_Free(parts[place]), 0);

    /* A group of members of the default group, by their numbers in it: everybody of it, turned round. */
    int turned[RANKS_MAX], turned_place = -1;
    for (int other = 0; other < members; other++) {
        turned[other] = members - 1 - other;
    }
    ARMCI_Group backwards;
    ARMCI_Group_create(members, turned, &backwards);
    CHECK_EQUAL(ARMCI_Group_rank(&backwards, &turned_place), 0);
    CHECK_EQUAL(turned_place, members - 1 - place);
    CHECK_EQUAL(ARMCI_Absolute_id(&backwards, turned_place), me);
    ARMCI_Group_free(&backwards);

    ARMCI_Group_set_default(&world);
    sum = 1;
    armci_msg_igop(&sum, 1, OPERATION("+"));
    CHECK_EQUAL(sum, ranks);
    ARMCI_Group_free(&group);
    armci_msg_barrier();
}

/* Many groups come and go. */
static void many_groups(void)
{
    for (int round = 0; round < 50; round++) {
        int list[RANKS_MAX], members = 0;
        for (int rank = 0; rank < ranks; rank++) {
            if (rank != round % ranks || ranks == 1) {
                list[members++] = rank;
            }
        }
        if (me == round % ranks && ranks > 1) {
            continue;
        }
        ARMCI_Group group;
        ARMCI_Group_create(members, list, &group);
        int sum = 1;
        armci_msg_group_igop(&sum, 1, OPERATION("+"), &group);
        CHECK_EQUAL(sum, members);
        ARMCI_Group_free(&group);
    }
    armci_msg_barrier();
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    the_group_of_all();
    groups_of_lists();
    children();
    the_default_group();
    many_groups();
    end("groups");
    return 0;
}
