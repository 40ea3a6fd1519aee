/* How long calls take, between the first PE and the last: the best of several rounds. Written to version 1.4, which every
 * implementation has. With the argument `busy` the last PE computes meanwhile. */
#define _POSIX_C_SOURCE 200809L

#include <shmem.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 7, LARGE = 4 << 20, MEDIUM = 1 << 20 };

static long small_static;
static long sync_first[SHMEM_REDUCE_SYNC_SIZE], sync_second[SHMEM_REDUCE_SYNC_SIZE];
static long all_to_all_sync[SHMEM_ALLTOALL_SYNC_SIZE];
static int done;
static int me, pes;

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void row(const char *name, double best)
{
    if (me == 0) {
        printf("%-28s %12.1f ns\n", name, best);
        fflush(stdout);
    }
}

/* By the first PE alone; the last one waits in a barrier, or computes until it is told. */
#define ONE(name, count, call)                                                                                         \
    do {                                                                                                               \
        double best = 1e30;                                                                                            \
        shmem_barrier_all();                                                                                           \
        for (int round = 0; me == 0 && round < ROUNDS; round++) {                                                      \
            const double began = now_ns();                                                                             \
            for (long i = 0; i < (count); i++) {                                                                       \
                call;                                                                                                  \
            }                                                                                                          \
            const double each = (now_ns() - began) / (double)(count);                                                  \
            best = each < best ? each : best;                                                                          \
        }                                                                                                              \
        row(name, best);                                                                                               \
        if (busy) {                                                                                                    \
            if (me == 0) {                                                                                             \
                shmem_int_p(&done, 1, pes - 1);                                                                        \
                shmem_quiet();                                                                                         \
            } else {                                                                                                   \
                while (!*(volatile int *)&done) {                                                                      \
                }                                                                                                      \
                done = 0;                                                                                              \
            }                                                                                                          \
        }                                                                                                              \
        shmem_barrier_all();                                                                                           \
    } while (0)

/* By all. */
#define ALL(name, count, call)                                                                                         \
    do {                                                                                                               \
        double best = 1e30;                                                                                            \
        for (int round = 0; round < ROUNDS; round++) {                                                                 \
            shmem_barrier_all();                                                                                       \
            const double began = now_ns();                                                                             \
            for (long i = 0; i < (count); i++) {                                                                       \
                long *sync = i % 2 ? sync_first : sync_second;                                                         \
                (void)sync;                                                                                            \
                call;                                                                                                  \
            }                                                                                                          \
            const double each = (now_ns() - began) / (double)(count);                                                  \
            best = each < best ? each : best;                                                                          \
        }                                                                                                              \
        row(name, best);                                                                                               \
    } while (0)

/* 1024 rows of 64 bytes, a column of 8 bytes at a time. */
static void put_columns(char *to, const char *from, int pe)
{
    for (int column = 0; column < 64; column += 8) {
        shmem_iput64(to + column, from + column, 8, 8, 1024, pe);
    }
    shmem_quiet();
}

static void get_columns(char *to, const char *from, int pe)
{
    for (int column = 0; column < 64; column += 8) {
        shmem_iget64(to + column, from + column, 8, 8, 1024, pe);
    }
}

int main(int argc, char **argv)
{
    const int busy = argc > 1 && strcmp(argv[1], "busy") == 0;
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    const int to = pes - 1;
    const long many = argc > 2 ? atol(argv[2]) : 200000, few = many / 1000 + 5;
    char *heap = (char *)shmem_malloc(LARGE), *other = (char *)shmem_malloc(LARGE);
    char *local = (char *)malloc(LARGE);
    long *word = (long *)heap, value = 1, *work = (long *)shmem_malloc(LARGE);
    if (!heap || !other || !local || !work) {
        shmem_global_exit(1);
    }
    memset(heap, 0, LARGE);
    memset(other, 0, LARGE);
    memset(local, 0, LARGE);
    for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++) {
        sync_first[i] = sync_second[i] = SHMEM_SYNC_VALUE;
    }
    for (int i = 0; i < SHMEM_ALLTOALL_SYNC_SIZE; i++) {
        all_to_all_sync[i] = SHMEM_SYNC_VALUE;
    }
    ONE("put 8 B and quiet, heap", many, shmem_long_put(word, &value, 1, to); shmem_quiet());
    ONE("get 8 B, heap", many, shmem_long_get(&value, word, 1, to));
    ONE("put 8 B and quiet, static", many, shmem_long_put(&small_static, &value, 1, to); shmem_quiet());
    ONE("get 8 B, static", many, shmem_long_get(&value, &small_static, 1, to));
    ONE("put_nbi 8 B", many, shmem_long_put_nbi(word, &value, 1, to));
    ONE("fetch-add", many, value += shmem_long_atomic_fetch_add(word, 1, to));
    ONE("compare-swap", many, value += shmem_long_atomic_compare_swap(word, 1, 2, to));
    ONE("put 1 MiB and quiet", few, shmem_putmem(heap, local, MEDIUM, to); shmem_quiet());
    ONE("get 1 MiB", few, shmem_getmem(local, heap, MEDIUM, to));
    ONE("put 4 MiB and quiet", few / 4 + 1, shmem_putmem(heap, local, LARGE, to); shmem_quiet());
    ONE("get 4 MiB", few / 4 + 1, shmem_getmem(local, heap, LARGE, to));
    ONE("iput 1024 x 8 B of 64", few, shmem_iput64(heap, local, 8, 8, 1024, to); shmem_quiet());
    ONE("iget 1024 x 8 B of 64", few, shmem_iget64(local, heap, 8, 8, 1024, to));
    ONE("iput 1024 x 64 B by columns", few, put_columns(heap, local, to));
    ONE("iget 1024 x 64 B by columns", few, get_columns(local, heap, to));
    if (!busy) {
        const long collectives = pes > 2 ? many / 100 + 10 : many / 10 + 10;
        ALL("barrier", collectives, shmem_barrier_all());
        ALL("sum of 8 B", collectives, shmem_long_sum_to_all((long *)other, word, 1, 0, 0, pes, work, sync));
        ALL("sum of 1 MiB", few, shmem_long_sum_to_all((long *)other, word, MEDIUM / 8, 0, 0, pes, work, sync));
        ALL("broadcast of 8 B", collectives, shmem_broadcast64(other, heap, 1, 0, 0, 0, pes, sync));
        ALL("broadcast of 1 MiB", few, shmem_broadcast64(other, heap, MEDIUM / 8, 0, 0, 0, pes, sync));
        ALL("alltoall of 8 B each", collectives,
            shmem_alltoall64(other, heap, 1, 0, 0, pes, all_to_all_sync); shmem_barrier_all());
    }
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
