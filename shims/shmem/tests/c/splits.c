/* Threads that split teams at the same time, each its own: the new teams do not share anything. */
#include "check.h"

#include <pthread.h>

enum { TURNS = 100, THREADS = 3 };

static shmem_team_t parents[THREADS];
static long sources[THREADS], sums[THREADS];

static void *work(void *argument)
{
    const int number = *(int *)argument;
    for (int turn = 0; turn < TURNS; turn++) {
        shmem_team_t team = SHMEM_TEAM_INVALID;
        CHECK_EQUAL(shmem_team_split_strided(parents[number], 0, 1, pes, NULL, 0, &team), 0);
        CHECK(team != SHMEM_TEAM_INVALID);
        CHECK_EQUAL(shmem_team_my_pe(team), me);
        CHECK_EQUAL(shmem_team_n_pes(team), pes);
        /* What the other threads add up at the same time in their teams does not get in. */
        sources[number] = (number + 1) * 1000000L + turn;
        CHECK_EQUAL(shmem_long_sum_reduce(team, &sums[number], &sources[number], 1), 0);
        CHECK_EQUAL(sums[number], ((number + 1) * 1000000L + turn) * pes);
        shmem_team_destroy(team);
    }
    return NULL;
}

/* PE 0 splits its team only after PE 2 has split another one; PE 1 is in both, with a thread in each. */
static shmem_team_t low, high;
static int gone;

static void *split(void *parent)
{
    shmem_team_t team = SHMEM_TEAM_INVALID;
    CHECK_EQUAL(shmem_team_split_strided(*(shmem_team_t *)parent, 0, 1, 2, NULL, 0, &team), 0);
    CHECK_EQUAL(shmem_team_n_pes(team), 2);
    shmem_team_destroy(team);
    return NULL;
}

static void one_waits_for_the_other(int turn)
{
    pthread_t first, second;
    if (me == 0) {
        shmem_int_wait_until(&gone, SHMEM_CMP_EQ, turn + 1);
        split(&low);
    } else if (me == 1) {
        CHECK_EQUAL(pthread_create(&first, NULL, split, &low), 0);
        CHECK_EQUAL(pthread_create(&second, NULL, split, &high), 0);
        CHECK_EQUAL(pthread_join(second, NULL), 0);
        CHECK_EQUAL(pthread_join(first, NULL), 0);
    } else if (me == 2) {
        split(&high);
        shmem_int_p(&gone, turn + 1, 0);
    }
}

int main(void)
{
    int provided, numbers[THREADS];
    pthread_t threads[THREADS];
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    begin();
    for (int number = 0; number < THREADS; number++) {
        CHECK_EQUAL(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes, NULL, 0, &parents[number]), 0);
        numbers[number] = number;
    }
    for (int number = 0; number < THREADS; number++) {
        CHECK_EQUAL(pthread_create(&threads[number], NULL, work, &numbers[number]), 0);
    }
    for (int number = 0; number < THREADS; number++) {
        CHECK_EQUAL(pthread_join(threads[number], NULL), 0);
    }
    for (int number = 0; number < THREADS; number++) {
        shmem_team_destroy(parents[number]);
    }
    if (pes >= 3) {
        shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, 2, NULL, 0, &low);
        shmem_team_split_strided(SHMEM_TEAM_WORLD, 1, 1, 2, NULL, 0, &high);
        for (int turn = 0; turn < TURNS; turn++) {
            one_waits_for_the_other(turn);
        }
    }
    end("splits");
    shmem_finalize();
    return 0;
}
