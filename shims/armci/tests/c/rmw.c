/* Read-modify-write: each operation, sums of all processes, and progress at a process that does something else. */
#include "check.h"

enum { TIMES = 1000 };

static int me, ranks;
static void *parts[RANKS_MAX];

static void each_operation(int target)
{
    int *word = (int *)parts[target] + 4 * me;
    long *wide = (long *)parts[target] + 2 * me + 1;
    int local = 0;
    long local_wide = 0;
    CHECK_EQUAL(ARMCI_PutValueInt(100, word, target), 0);
    CHECK_EQUAL(ARMCI_PutValueInt(-77, word + 1, target), 0);
    CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &local, word, 5, target), 0);
    CHECK_EQUAL(local, 100);
    CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &local, word, -200, target), 0);
    CHECK_EQUAL(local, 105);
    local = 42;
    CHECK_EQUAL(ARMCI_Rmw(ARMCI_SWAP, &local, word, 0, target), 0);
    CHECK_EQUAL(local, -95);
    CHECK_EQUAL(ARMCI_GetValueInt(word, target), 42);
    CHECK_EQUAL(ARMCI_GetValueInt(word + 1, target), -77);

    CHECK_EQUAL(ARMCI_PutValueLong(1L << 40, wide, target), 0);
    CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &local_wide, wide, -1, target), 0);
    CHECK_EQUAL(local_wide, 1L << 40);
    local_wide = -(1L << 50);
    CHECK_EQUAL(ARMCI_Rmw(ARMCI_SWAP_LONG, &local_wide, wide, 0, target), 0);
    CHECK_EQUAL(local_wide, (1L << 40) - 1);
    CHECK_EQUAL(ARMCI_GetValueLong(wide, target), -(1L << 50));
    /* Sums wrap around. */
    CHECK_EQUAL(ARMCI_PutValueInt(2147483647, word, target), 0);
    CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &local, word, 1, target), 0);
    CHECK_EQUAL(ARMCI_GetValueInt(word, target), -2147483647 - 1);
    ARMCI_Fence(target);
}

/* Every value of a counter is drawn once. */
static void counters_are_contended(int owner)
{
    int *counter = (int *)parts[owner] + 200;
    long *wide = (long *)parts[owner] + 101;
    char *seen = (char *)allocate((size_t)(ranks * TIMES));
    static int drawn[TIMES];
    if (me == owner) {
        *counter = 0;
        *wide = 0;
    }
    armci_msg_barrier();
    int last = -1;
    for (int time = 0; time < TIMES; time++) {
        long before = -1;
        CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &drawn[time], counter, 1, owner), 0);
        CHECK(drawn[time] > last);
        last = drawn[time];
        CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &before, wide, 1000 + me, owner), 0);
        CHECK(before >= 0);
    }
    memset(seen, 0, (size_t)(ranks * TIMES));
    for (int time = 0; time < TIMES; time++) {
        CHECK(drawn[time] >= 0 && drawn[time] < ranks * TIMES);
        seen[drawn[time]] = 1;
    }
    int *all = (int *)allocate((size_t)(ranks * TIMES) * sizeof(int));
    for (int value = 0; value < ranks * TIMES; value++) {
        all[value] = seen[value];
    }
    armci_msg_igop(all, ranks * TIMES, OPERATION("+"));
    for (int value = 0; value < ranks * TIMES; value++) {
        CHECK_EQUAL(all[value], 1);
    }
    armci_msg_barrier();
    CHECK_EQUAL(ARMCI_GetValueInt(counter, owner), ranks * TIMES);
    CHECK_EQUAL(ARMCI_GetValueLong(wide, owner), (long)TIMES * (1000 * ranks + ranks * (ranks - 1) / 2));
    armci_msg_barrier();
    free(seen);
    free(all);
}

/* What is swapped out by one is what another has swapped in: all values stay in the game. */
static void swaps_lose_nothing(void)
{
    long *place = (long *)parts[0] + 120, mine = me + 1;
    if (me == 0) {
        *place = 0;
    }
    armci_msg_barrier();
    for (int time = 0; time < TIMES; time++) {
        CHECK_EQUAL(ARMCI_Rmw(ARMCI_SWAP_LONG, &mine, place, 0, 0), 0);
        CHECK(mine >= 0 && mine <= ranks);
    }
    armci_msg_barrier();
    long sum = mine;
    armci_msg_lgop(&sum, 1, OPERATION("+"));
    sum += ARMCI_GetValueLong(place, 0);
    CHECK_EQUAL(sum, (long)ranks * (ranks + 1) / 2);
    armci_msg_barrier();
}

/* Others draw from a counter of process 0, which makes no call until they are done: it looks at its own memory. */
static void a_process_that_computes_serves(void)
{
    volatile int *done = (volatile int *)parts[0] + 300;
    int one = 0;
    if (me == 0) {
        *done = 0;
    }
    armci_msg_barrier();
    if (me == 0) {
        while (*done != ranks - 1) {
        }
    } else {
        CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &one, (void *)((int *)parts[0] + 300), 1, 0), 0);
        CHECK(one >= 0 && one < ranks - 1);
    }
    armci_msg_barrier();
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(parts, 4096);
    for (int target = 0; target < ranks; target++) {
        each_operation(target);
    }
    settle();
    for (int owner = 0; owner < ranks; owner++) {
        counters_are_contended(owner);
    }
    swaps_lose_nothing();
    a_process_that_computes_serves();
    free_segment(parts);
    end("rmw");
    return 0;
}
