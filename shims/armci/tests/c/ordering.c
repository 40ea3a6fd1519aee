/* Blocking calls of one process to one target take effect in the order of the program, without a fence. */
#include "check.h"

enum { ROUNDS = 200, BYTES = 40000 };

static int me, ranks;
static void *parts[RANKS_MAX];

static char *place_of(int target)
{
    return at(parts[target], (long)me * BYTES);
}

/* The later put wins, and a get sees it; short after long, long after short, patch after plain. */
static void puts_and_gets(int target)
{
    static char out[BYTES], in[BYTES];
    const int lengths[] = {8, BYTES, 100, 5000, 1};
    for (int round = 0; round < ROUNDS; round++) {
        int first = lengths[round % 5], second = lengths[(round / 5) % 5];
        int shorter = first < second ? first : second;
        fill(out, (unsigned)(round * 2), (size_t)first);
        CHECK_EQUAL(ARMCI_Put(out, place_of(target), first, target), 0);
        fill(out, (unsigned)(round * 2 + 1), (size_t)second);
        if (round % 3 == 0 && second >= 100) {
            int half[1] = {second / 2}, count[2] = {second / 2, 2};
            CHECK_EQUAL(ARMCI_PutS(out, half, place_of(target), half, count, 1, target), 0);
        } else {
            CHECK_EQUAL(ARMCI_Put(out, place_of(target), second, target), 0);
        }
        CHECK_EQUAL(ARMCI_Get(place_of(target), in, shorter, target), 0);
        CHECK(is_filled(in, (unsigned)(round * 2 + 1), (size_t)(shorter & ~1)));
    }
}

/* An accumulate adds to what was put before, and a put replaces what was added. */
static void puts_and_accumulates(int target)
{
    double numbers[64], one = 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int index = 0; index < 64; index++) {
            numbers[index] = round + index;
        }
        CHECK_EQUAL(ARMCI_Put(numbers, place_of(target), sizeof numbers, target), 0);
        CHECK_EQUAL(ARMCI_Acc(ARMCI_ACC_DBL, &one, numbers, place_of(target), sizeof numbers, target), 0);
        CHECK_EQUAL(ARMCI_Acc(ARMCI_ACC_DBL, &one, numbers, place_of(target), sizeof numbers, target), 0);
        memset(numbers, 0, sizeof numbers);
        CHECK_EQUAL(ARMCI_Get(place_of(target), numbers, sizeof numbers, target), 0);
        for (int index = 0; index < 64; index++) {
            CHECK_EQUAL(numbers[index], 3 * (round + index));
        }
        CHECK_EQUAL(ARMCI_Acc(ARMCI_ACC_DBL, &one, numbers, place_of(target), sizeof numbers, target), 0);
        CHECK_EQUAL(ARMCI_PutValueDouble(-1, place_of(target), target), 0);
        CHECK(ARMCI_GetValueDouble(place_of(target), target) == -1);
        CHECK(ARMCI_GetValueDouble(place_of(target) + 8, target) == 6 * (round + 1));
    }
}

static void puts_and_rmws(int target)
{
    for (int round = 0; round < ROUNDS; round++) {
        long before = -1;
        CHECK_EQUAL(ARMCI_PutValueLong(round, place_of(target), target), 0);
        CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &before, place_of(target), 5, target), 0);
        CHECK_EQUAL(before, round);
        CHECK_EQUAL(ARMCI_GetValueLong(place_of(target), target), round + 5);
    }
}

/* After a fence and a message the target sees everything. */
static void fences(int distance)
{
    static char out[BYTES];
    int target = (me + distance) % ranks, origin = (me + ranks - distance) % ranks;
    for (int round = 0; round < 10; round++) {
        int token = round, length = 0;
        fill(out, (unsigned)(round * 50 + me), BYTES);
        CHECK_EQUAL(ARMCI_Put(out, place_of(target), BYTES, target), 0);
        if (round % 2 == 0) {
            ARMCI_Fence(target);
        } else {
            ARMCI_AllFence();
        }
        armci_msg_snd(7, &token, sizeof token, target);
        token = -1;
        armci_msg_rcv(7, &token, sizeof token, &length, origin);
        CHECK_EQUAL(token, round);
        CHECK_EQUAL(length, (int)sizeof token);
        CHECK(is_filled(at(parts[me], (long)origin * BYTES), (unsigned)(round * 50 + origin), BYTES));
        armci_msg_barrier();
    }
}

/* A barrier fences; so does a fence of a group. */
static void barriers(void)
{
    static char out[BYTES];
    for (int round = 0; round < 10; round++) {
        fill(out, (unsigned)(round * 50 + me), BYTES);
        for (int target = 0; target < ranks; target++) {
            CHECK_EQUAL(ARMCI_Put(out, place_of(target), BYTES, target), 0);
        }
        if (round % 2 == 0) {
            ARMCI_Barrier();
        } else {
            ARMCI_Group world;
            ARMCI_Group_get_world(&world);
            ARMCI_GroupFence(&world);
            armci_msg_barrier();
        }
        for (int origin = 0; origin < ranks; origin++) {
            CHECK(is_filled(at(parts[me], (long)origin * BYTES), (unsigned)(round * 50 + origin), BYTES));
        }
        armci_msg_barrier();
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(parts, (size_t)ranks * BYTES);
    for (int target = 0; target < ranks; target++) {
        puts_and_gets(target);
        puts_and_accumulates(target);
        puts_and_rmws(target);
    }
    for (int distance = 0; distance < ranks; distance++) {
        fences(distance);
    }
    barriers();
    free_segment(parts);
    end("ordering");
    return 0;
}
