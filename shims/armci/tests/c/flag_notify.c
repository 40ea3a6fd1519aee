/* Who sees a flag or gets a notice sees the bytes that were put before. */
#include "check.h"

#include <sched.h>

enum { ROUNDS = 60, BYTES = 20000, ROWS = 20 };

static int me, ranks;
static void *data[RANKS_MAX], *flags[RANKS_MAX];

/* Looks at a flag here until it has a value. */
static void await_flag(int which, int value)
{
    volatile int *flag = (volatile int *)flags[me] + which;
    while (*flag != value) {
        sched_yield();
    }
    ARMCI_Access_begin(flags[me]);
}

/* Each process puts to the next one; lengths differ, so that all paths are taken. */
static void contiguous_with_flag(void)
{
    static char source[BYTES];
    int next = next_rank(), previous = previous_rank();
    for (int round = 1; round <= ROUNDS; round++) {
        int length = round % 4 == 0 ? BYTES : round * 17;
        fill(source, (unsigned)(me * 1000 + round), (size_t)length);
        CHECK_EQUAL(ARMCI_Put_flag(source, data[next], length, (int *)flags[next], round, next), 0);
        /* The source may be reused. */
        memset(source, 0, (size_t)length);
        await_flag(0, round);
        CHECK(is_filled(data[me], (unsigned)(previous * 1000 + round), (size_t)length));
        armci_msg_barrier();
    }
}

static void patches_with_flag(void)
{
    static char source[BYTES];
    int next = next_rank(), previous = previous_rank();
    int dense[1] = {BYTES / ROWS / 2}, apart[1] = {BYTES / ROWS}, count[2] = {BYTES / ROWS / 2, ROWS};
    memset(data[me], 0, BYTES);
    armci_msg_barrier();
    for (int round = 1; round <= ROUNDS; round++) {
        fill(source, (unsigned)(me * 1000 + round), BYTES / 2);
        int *flag = (int *)flags[next] + 1;
        if (round % 2 == 0) {
            CHECK_EQUAL(ARMCI_PutS_flag(source, dense, data[next], apart, count, 1, flag, round, next), 0);
        } else {
            CHECK_EQUAL(ARMCI_PutS_flag_dir(source, dense, data[next], apart, count, 1, flag, round, next), 0);
        }
        await_flag(1, round);
        char expected[BYTES / 2];
        fill(expected, (unsigned)(previous * 1000 + round), BYTES / 2);
        for (int row = 0; row < ROWS; row++) {
            CHECK(memcmp(at(data[me], row * apart[0]), expected + row * dense[0], (size_t)dense[0]) == 0);
            CHECK(is_all(at(data[me], row * apart[0] + dense[0]), 0, (size_t)dense[0]));
        }
        armci_msg_barrier();
    }
}

/* Notices are counted, apart for every pair, and come behind the puts. */
static void notices(void)
{
    static char source[BYTES];
    for (int round = 1; round <= ROUNDS; round++) {
        for (int step = 0; step < ranks; step++) {
            int target = (me + step) % ranks;
            char *place = at(data[target], (long)me * (BYTES / RANKS_MAX));
            int length = BYTES / RANKS_MAX - round;
            fill(source, (unsigned)(round * 100 + me), (size_t)length);
            CHECK_EQUAL(ARMCI_Put(source, place, length, target), 0);
            CHECK_EQUAL(armci_notify(target), round);
        }
        for (int step = 0; step < ranks; step++) {
            int origin = (me + ranks - step) % ranks, count = -1;
            CHECK(armci_notify_wait(origin, &count) >= round);
            CHECK_EQUAL(count, round);
            char *place = at(data[me], (long)origin * (BYTES / RANKS_MAX));
            CHECK(is_filled(place, (unsigned)(round * 100 + origin), (size_t)(BYTES / RANKS_MAX - round)));
        }
        armci_msg_barrier();
    }
    /* Several may be sent before the first is waited for. */
    for (int more = 1; more <= 5; more++) {
        CHECK_EQUAL(armci_notify(next_rank()), ROUNDS + more);
    }
    for (int more = 1; more <= 5; more++) {
        int count = 0;
        int come = armci_notify_wait(previous_rank(), &count);
        CHECK(come >= ROUNDS + more && come <= ROUNDS + 5);
        CHECK_EQUAL(count, ROUNDS + more);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(data, BYTES);
    segment(flags, 64);
    contiguous_with_flag();
    patches_with_flag();
    notices();
    free_segment(data);
    free_segment(flags);
    end("flag_notify");
    return 0;
}
