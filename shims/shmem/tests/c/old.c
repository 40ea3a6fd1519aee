/* A program of the oldest versions: start_pes, active sets, the allocator's and constants' first names. */
#include <mpp/shmem.h>

#include "check.h"

enum { COUNT = 300 };

static long sync_array[_SHMEM_BCAST_SYNC_SIZE], other_sync[_SHMEM_REDUCE_SYNC_SIZE];
static long source[PES_MAX * COUNT], dest[PES_MAX * COUNT];
static long work[COUNT / 2 + 1 > _SHMEM_REDUCE_MIN_WRKDATA_SIZE ? COUNT / 2 + 1 : _SHMEM_REDUCE_MIN_WRKDATA_SIZE];

/* Every other PE, from the first or second on. */
static void one_set(int start, int log_stride, int size)
{
    const int step = 1 << log_stride, place = (me - start) / step;
    if (me < start || (me - start) % step != 0 || place >= size) {
        return;
    }
    for (int i = 0; i < PES_MAX * COUNT; i++) {
        source[i] = me * 100000L + i;
        dest[i] = -1;
    }
    shmem_barrier(start, log_stride, size, sync_array);
    shmem_broadcast64(dest, source, COUNT, size - 1, start, log_stride, size, other_sync);
    const long root = start + (size - 1) * step;
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQUAL(dest[i], me == root ? -1 : root * 100000L + i);
    }
    /* A root that is no place in the set is a PE of it. */
    if (size == 1) {
        shmem_broadcast64(dest, source, COUNT, start, start, log_stride, size, other_sync);
        CHECK_EQUAL(dest[0], -1);
    }
    shmem_sync(start, log_stride, size, sync_array);
    shmem_fcollect64(dest, source, COUNT, start, log_stride, size, other_sync);
    for (int from = 0; from < size; from++) {
        CHECK_EQUAL(dest[from * COUNT + 5], (start + from * step) * 100000L + 5);
    }
    shmem_barrier(start, log_stride, size, sync_array);
    shmem_collect64(dest, source, (size_t)(place + 1), start, log_stride, size, other_sync);
    for (int from = 0, at = 0; from < size; at += from + 1, from++) {
        CHECK_EQUAL(dest[at + from], (start + from * step) * 100000L + from);
    }
    shmem_barrier(start, log_stride, size, sync_array);
    shmem_alltoall64(dest, source, 3, start, log_stride, size, other_sync);
    for (int from = 0; from < size; from++) {
        CHECK_EQUAL(dest[from * 3 + 2], (start + from * step) * 100000L + place * 3 + 2);
    }
    shmem_barrier(start, log_stride, size, sync_array);
    shmem_alltoalls32(dest, source, 2, 2, 3, start, log_stride, size, other_sync);
    CHECK_EQUAL(((int *)dest)[0], (int)(start * 100000L + place * 3));
    shmem_barrier(start, log_stride, size, sync_array);
    shmem_long_sum_to_all(dest, source, COUNT, start, log_stride, size, work, other_sync);
    long pes_sum = 0;
    for (int from = 0; from < size; from++) {
        pes_sum += start + from * step;
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQUAL(dest[i], pes_sum * 100000L + (long)size * i);
    }
    shmem_barrier(start, log_stride, size, sync_array);
    shmem_long_max_to_all(source, source, COUNT, start, log_stride, size, work, other_sync);
    CHECK_EQUAL(source[7], root * 100000L + 7);
    static double reals[2], least[2], real_work[2];
    reals[0] = me + 0.5;
    shmem_barrier(start, log_stride, size, sync_array);
    shmem_double_min_to_all(least, reals, 1, start, log_stride, size, real_work, other_sync);
    CHECK(least[0] == start + 0.5);
    for (int i = 0; i < _SHMEM_BCAST_SYNC_SIZE; i++) {
        CHECK_EQUAL(sync_array[i], _SHMEM_SYNC_VALUE);
    }
}

int main(void)
{
    start_pes(0);
    me = _my_pe();
    pes = _num_pes();
    CHECK_EQUAL(me, shmem_my_pe());
    CHECK_EQUAL(pes, shmem_n_pes());
    for (int i = 0; i < _SHMEM_BCAST_SYNC_SIZE; i++) {
        sync_array[i] = other_sync[i] = _SHMEM_SYNC_VALUE;
    }
    shmem_barrier_all();
    for (int turn = 0; turn < 3; turn++) {
        one_set(0, 0, pes);
        one_set(0, 1, (pes + 1) / 2);
        if (pes > 1) {
            one_set(1, 1, pes / 2);
            one_set(1, 0, pes - 1);
        }
        one_set(pes - 1, 3, 1);
    }
    long *area = (long *)shmalloc(80 * sizeof(long));
    CHECK(area != NULL);
    area[0] = 5;
    area = (long *)shrealloc(area, 8000 * sizeof(long));
    CHECK_EQUAL(area[0], 5);
    shfree(area);
    area = (long *)shmemalign(4096, 10);
    CHECK((uintptr_t)area % 4096 == 0);
    area[0] = 0;
    shmem_barrier_all();
    shmem_long_p(area, me + 1, next_pe());
    shmem_long_wait(area, 0);
    CHECK_EQUAL(area[0], previous_pe() + 1);
    shmem_long_wait_until(area, _SHMEM_CMP_EQ, previous_pe() + 1);
    /* Its old name without a type, which in C11 and C++ is that of all types too. */
    shmem_barrier_all();
    CHECK_EQUAL(shmem_swap(area, 77L, next_pe()), me + 1);
    shmem_barrier_all();
    CHECK_EQUAL(area[0], 77);
    long (*swap)(long *, long, int) = &(shmem_swap);
    CHECK_EQUAL(swap(area, 78, me), 77);
    shmem_clear_cache_inv();
    shmem_set_cache_inv();
    shmem_set_cache_line_inv(area);
    shmem_clear_cache_line_inv(area);
    shmem_udcflush();
    shmem_udcflush_line(area);
    CHECK_EQUAL(_SHMEM_MAJOR_VERSION, 1);
    shmem_barrier_all();
    if (me == 0) {
        printf("ok old\n");
    }
    /* Programs of that time end without another word. */
    return 0;
}
