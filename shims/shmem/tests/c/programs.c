/*
 * Two programs in one job, from this one source: PEs of even number run the one, PEs of odd number the one compiled with
 * -DOTHER. Variables are symmetric among PEs of one program, the heap among all.
 */
#include "check.h"

#ifdef OTHER
static char before[100000];
#endif
static long counter;
static int values[3000], sums[3000];

int main(int argc, char **argv)
{
    begin();
#ifdef OTHER
    before[me] = 1;
#endif
    const int like_me = (me + 2) % (pes % 2 == 0 ? pes : pes + 1), partner = like_me < pes ? like_me : me % 2;
    CHECK_EQUAL(partner % 2, me % 2);
    if (argc > 1 && strcmp(argv[1], "across") == 0) {
        if (me == pes - 1) {
            shmem_long_p(&counter, 1, pes - 2);
            printf("goes on\n");
        }
        shmem_barrier_all();
        return 1;
    }
    shmem_long_atomic_add(&counter, 5, partner);
    long *heap = (long *)shmem_calloc(1, sizeof(long));
    shmem_long_atomic_inc(heap, next_pe());
    shmem_barrier_all();
    CHECK_EQUAL(counter, 5);
    CHECK_EQUAL(*heap, 1);
    for (int i = 0; i < 3000; i++) {
        values[i] = me + i;
    }
    CHECK_EQUAL(shmem_int_sum_reduce(SHMEM_TEAM_WORLD, sums, values, 3000), 0);
    CHECK_EQUAL(sums[2999], pes * (pes - 1) / 2 + pes * 2999);
    end("programs");
    return 0;
}
