/* Eight threads of every process make all kinds of calls at once. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>

enum { THREADS = 8, TIMES = 60, BYTES = 6000 };

static int me, ranks;
static void *regions[RANKS_MAX], *shared[RANKS_MAX];

/* What a thread owns at every target. */
static char *region_of(int target, int origin, int thread)
{
    return at(regions[target], ((long)origin * THREADS + thread) * BYTES);
}

static void put_and_get(int thread, int time, int target)
{
    char out[BYTES], in[BYTES];
    int length = 1 + (time * 997 + thread * 31) % BYTES;
    unsigned seed = (unsigned)(me * 10000 + thread * 100 + time);
    armci_hdl_t handle;
    fill(out, seed, (size_t)length);
    ARMCI_INIT_HANDLE(&handle);
    char *place = region_of(target, me, thread);
    if (time % 2 == 0) {
        CHECK_EQUAL(ARMCI_Put(out, place, length, target), 0);
        CHECK_EQUAL(ARMCI_Get(place, in, length, target), 0);
    } else {
        CHECK_EQUAL(ARMCI_NbPut(out, place, length, target, &handle), 0);
        CHECK_EQUAL(ARMCI_Wait(&handle), 0);
        ARMCI_Fence(target);
        CHECK_EQUAL(ARMCI_NbGet(place, in, length, target, &handle), 0);
        CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    }
    CHECK(is_filled(in, seed, (size_t)length));
}

static void patch(int thread, int time, int target)
{
    int dense[1] = {40}, apart[1] = {100}, count[2] = {40, 20};
    char out[800], in[800];
    fill(out, (unsigned)(time + thread), sizeof out);
    char *place = region_of(target, me, thread);
    CHECK_EQUAL(ARMCI_PutS(out, dense, place, apart, count, 1, target), 0);
    CHECK_EQUAL(ARMCI_GetS(place, apart, in, dense, count, 1, target), 0);
    CHECK(memcmp(out, in, sizeof in) == 0);
}

/* All threads of all processes add to the same places. */
static void add(int target)
{
    double ones[10], scale = 2;
    long before = -1;
    for (int index = 0; index < 10; index++) {
        ones[index] = 1;
    }
    CHECK_EQUAL(ARMCI_Acc(ARMCI_ACC_DBL, &scale, ones, shared[target], sizeof ones, target), 0);
    CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &before, (long *)shared[target] + 20, 1, target), 0);
    CHECK(before >= 0);
}

static void count_under_mutex(int target)
{
    long *counter = (long *)shared[target] + 21;
    ARMCI_Lock(0, target);
    long value = ARMCI_GetValueLong(counter, target);
    CHECK_EQUAL(ARMCI_PutValueLong(value + 1, counter, target), 0);
    ARMCI_Fence(target);
    ARMCI_Unlock(0, target);
}

static void *work(void *argument)
{
    int thread = *(int *)argument;
    for (int time = 0; time < TIMES; time++) {
        int target = (me + thread + time) % ranks;
        put_and_get(thread, time, target);
        patch(thread, time, target);
        add(target);
        if (time % 6 == 0) {
            count_under_mutex(target);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(regions, (size_t)ranks * THREADS * BYTES);
    segment(shared, 1024);
    CHECK_EQUAL(ARMCI_Create_mutexes(1), 0);
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int thread = 0; thread < THREADS; thread++) {
        numbers[thread] = thread;
        CHECK_EQUAL(pthread_create(&threads[thread], NULL, work, &numbers[thread]), 0);
    }
    for (int thread = 0; thread < THREADS; thread++) {
        CHECK_EQUAL(pthread_join(threads[thread], NULL), 0);
    }
    settle();
    double sums = ((double *)shared[me])[3];
    long counts[2];
    counts[0] = ((long *)shared[me])[20];
    counts[1] = ((long *)shared[me])[21];
    armci_msg_dgop(&sums, 1, OPERATION("+"));
    armci_msg_lgop(counts, 2, OPERATION("+"));
    CHECK_EQUAL(sums, 2L * ranks * THREADS * TIMES);
    CHECK_EQUAL(counts[0], (long)ranks * THREADS * TIMES);
    CHECK_EQUAL(counts[1], (long)ranks * THREADS * (TIMES / 6));
    CHECK_EQUAL(ARMCI_Destroy_mutexes(), 0);
    free_segment(regions);
    free_segment(shared);
    end("threads");
    return 0;
}
