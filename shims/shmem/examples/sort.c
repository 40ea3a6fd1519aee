/* Integer sort by buckets: each PE sends every key to the PE whose range it is in, and sorts what it gets. */
#include "common.h"

enum { KEYS = 1 << 13 };
static const uint64_t RANGE = 1u << 20;

static int by_size(const void *left, const void *right)
{
    const uint64_t l = *(const uint64_t *)left, r = *(const uint64_t *)right;
    return l < r ? -1 : l > r;
}

int main(void)
{
    shmem_init();
    const int me = shmem_my_pe(), pes = shmem_n_pes();
    static uint64_t filled, sum, sums, count, counts, first, firsts[64];
    require(pes <= 64, "more PEs than this program knows");
    /* What all of them could send to one. */
    uint64_t *bucket = (uint64_t *)shmem_malloc((size_t)pes * KEYS * sizeof(uint64_t));
    require(bucket != NULL, "no memory for the bucket");
    shmem_barrier_all();
    for (uint64_t i = 0; i < KEYS; i++) {
        const uint64_t key = scramble((uint64_t)me * KEYS + i) % RANGE;
        const int owner = (int)(key * (uint64_t)pes / RANGE);
        const uint64_t place = shmem_atomic_fetch_inc(&filled, owner);
        shmem_p(&bucket[place], key, owner);
        sum += key;
    }
    shmem_barrier_all();
    qsort(bucket, filled, sizeof *bucket, by_size);
    /* Nothing was lost, all keys are in this PE's range, and the next PE's follow. */
    shmem_sum_reduce(SHMEM_TEAM_WORLD, &sums, &sum, 1);
    count = filled;
    shmem_sum_reduce(SHMEM_TEAM_WORLD, &counts, &count, 1);
    require(counts == (uint64_t)pes * KEYS, "the number of keys is another one");
    static uint64_t sorted_sum, sorted_sums;
    for (uint64_t i = 0; i < filled; i++) {
        sorted_sum += bucket[i];
        require(i == 0 || bucket[i - 1] <= bucket[i], "the keys are not in order");
    }
    shmem_sum_reduce(SHMEM_TEAM_WORLD, &sorted_sums, &sorted_sum, 1);
    require(sums == sorted_sums, "the sum of the keys is another one");
    first = filled > 0 ? bucket[0] : RANGE;
    shmem_fcollect(SHMEM_TEAM_WORLD, firsts, &first, 1);
    require(me == pes - 1 || filled == 0 || bucket[filled - 1] <= firsts[me + 1], "the next PE's keys are smaller");
    shmem_free(bucket);
    finish("sort");
    return 0;
}
