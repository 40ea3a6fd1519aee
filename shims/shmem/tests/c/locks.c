/* Locks in heap and static memory, set, tried and cleared by all PEs; and threads that work at once, each in its context. */
#include "check.h"

#include <pthread.h>

enum { TURNS = 200, THREADS = 3 };

static long static_lock, locks[5];
static long counter, counters[THREADS];

static void guarded(long *lock)
{
    counter = 0;
    shmem_barrier_all();
    for (int turn = 0; turn < TURNS; turn++) {
        if (turn % 4 == 3) {
            while (shmem_test_lock(lock)) {
            }
        } else {
            shmem_set_lock(lock);
        }
        /* Neither atomic nor ordered, were it not for the lock. */
        const long seen = shmem_long_g(&counter, 0);
        shmem_long_p(&counter, seen + 1, 0);
        shmem_clear_lock(lock);
    }
    shmem_barrier_all();
    CHECK_EQUAL(shmem_long_g(&counter, 0), TURNS * pes);
    CHECK_EQUAL(*lock, 0);
    shmem_barrier_all();
}

static void *work(void *argument)
{
    const int number = *(int *)argument;
    shmem_ctx_t ctx;
    CHECK_EQUAL(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx), 0);
    for (int turn = 0; turn < TURNS; turn++) {
        shmem_ctx_long_atomic_inc(ctx, &counters[number], turn % pes);
        shmem_long_atomic_add(&counters[number], 1, next_pe());
    }
    shmem_ctx_quiet(ctx);
    shmem_ctx_destroy(ctx);
    return NULL;
}

int main(void)
{
    int provided, numbers[THREADS];
    pthread_t threads[THREADS];
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    begin();
    guarded(&static_lock);
    guarded(&locks[3]);
    long *lock = (long *)shmem_calloc(4, sizeof(long));
    guarded(&lock[1]);
    shmem_free(lock);
    for (int number = 0; number < THREADS; number++) {
        numbers[number] = number;
        CHECK_EQUAL(pthread_create(&threads[number], NULL, work, &numbers[number]), 0);
    }
    for (int number = 0; number < THREADS; number++) {
        CHECK_EQUAL(pthread_join(threads[number], NULL), 0);
    }
    shmem_barrier_all();
    static long own, sum;
    own = 0;
    for (int number = 0; number < THREADS; number++) {
        own += counters[number];
    }
    CHECK_EQUAL(shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &sum, &own, 1), 0);
    CHECK_EQUAL(sum, 2L * THREADS * TURNS * pes);
    end("locks");
    shmem_finalize();
    return 0;
}
