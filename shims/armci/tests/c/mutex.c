/* Mutexes: counters that are read and written under them, several of one owner, none at some. */
#include "check.h"

enum { TIMES = 60, MUTEXES = 3 };

static int me, ranks;
static void *parts[RANKS_MAX];

/* Adds one to a counter by a get and a put, which is right only if nobody else does so meanwhile. */
static void increment(long *counter, int owner)
{
    long value = -1;
    CHECK_EQUAL(ARMCI_Get(counter, &value, sizeof value, owner), 0);
    value++;
    CHECK_EQUAL(ARMCI_Put(&value, counter, sizeof value, owner), 0);
}

static void counters_under_mutexes(void)
{
    CHECK_EQUAL(ARMCI_Create_mutexes(MUTEXES), 0);
    memset(parts[me], 0, 256);
    armci_msg_barrier();
    for (int time = 0; time < TIMES; time++) {
        int owner = (me + time) % ranks, which = time % MUTEXES;
        ARMCI_Lock(which, owner);
        increment((long *)parts[owner] + which, owner);
        ARMCI_Fence(owner);
        ARMCI_Unlock(which, owner);
    }
    settle();
    long total = 0;
    for (int which = 0; which < MUTEXES; which++) {
        total += ((long *)parts[me])[which];
    }
    armci_msg_lgop(&total, 1, OPERATION("+"));
    CHECK_EQUAL(total, (long)ranks * TIMES);
    CHECK_EQUAL(ARMCI_Destroy_mutexes(), 0);
}

/* All want the same one; the counter is not where the mutex is. Without a fence, which an unlock includes. */
static void one_mutex_is_contended(void)
{
    int owner = ranks - 1, home = 0;
    CHECK_EQUAL(ARMCI_Create_mutexes(me == owner ? 1 : 0), 0);
    if (me == home) {
        memset(parts[me], 0, 256);
    }
    armci_msg_barrier();
    for (int time = 0; time < TIMES; time++) {
        ARMCI_Lock(0, owner);
        increment((long *)parts[home], home);
#ifdef WITH_MPI
        ARMCI_Fence(home);
#endif
        ARMCI_Unlock(0, owner);
    }
    settle();
    CHECK_EQUAL(ARMCI_GetValueLong(parts[home], home), (long)ranks * TIMES);
    armci_msg_barrier();
    CHECK_EQUAL(ARMCI_Destroy_mutexes(), 0);
}

/* Several are held at a time, taken in one order by all. */
static void several_are_held(void)
{
    CHECK_EQUAL(ARMCI_Create_mutexes(1 + me), 0);
    memset(parts[me], 0, 256);
    armci_msg_barrier();
    for (int time = 0; time < TIMES / 4; time++) {
        for (int owner = 0; owner < ranks; owner++) {
            ARMCI_Lock(owner, owner);
        }
        for (int owner = 0; owner < ranks; owner++) {
            increment((long *)parts[owner] + 5, owner);
        }
        ARMCI_AllFence();
        for (int owner = ranks - 1; owner >= 0; owner--) {
            ARMCI_Unlock(owner, owner);
        }
    }
    settle();
    CHECK_EQUAL(((long *)parts[me])[5], (long)ranks * (TIMES / 4));
    armci_msg_barrier();
    CHECK_EQUAL(ARMCI_Destroy_mutexes(), 0);
}

/* None anywhere is a set too, and sets come and go. */
static void sets_come_and_go(void)
{
    for (int round = 0; round < 5; round++) {
        CHECK_EQUAL(ARMCI_Create_mutexes(round % 2 == 0 ? 0 : 100), 0);
        if (round % 2 != 0) {
            ARMCI_Lock(99, next_rank());
            ARMCI_Unlock(99, next_rank());
        }
        armci_msg_barrier();
        CHECK_EQUAL(ARMCI_Destroy_mutexes(), 0);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(parts, 256);
    counters_under_mutexes();
    /* Again: the mutex of the new set has the number and the owner that the threads remember from the one before. */
    one_mutex_is_contended();
    one_mutex_is_contended();
    several_are_held();
    sets_come_and_go();
    free_segment(parts);
    end("mutex");
    return 0;
}
