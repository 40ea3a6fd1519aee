/*
 * ARMCI and OpenSHMEM in one process, started in either order, as one world. The argument says which order: "armci" or "shmem"
 * first. With MPI, if it is compiled in: as the program's own, or left to the library.
 */
#ifdef WITH_MPI
#include <mpi.h>
#endif

#include <armci.h>
#include <shmem.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %d: %s does not hold\n", __FILE__, __LINE__, me, #condition);                 \
            shmem_global_exit(1);                                                                                      \
        }                                                                                                              \
    } while (0)

static int me, count;
static long variable, total;

/* Each interface moves what the other one's memory holds, in turns. */
static void exchange(void)
{
    const int right = (me + 1) % count, left = (me + count - 1) % count;
    void **segments = (void **)malloc((size_t)count * sizeof(void *));
    long *heap = (long *)shmem_calloc(100, sizeof(long));
    CHECK(heap != NULL && ARMCI_Malloc(segments, 100 * (armci_size_t)sizeof(long)) == 0);
    long *mine = (long *)segments[me];
    memset(mine, 0, 100 * sizeof(long));
    variable = 0;
    shmem_barrier_all();
    for (int turn = 1; turn <= 10; turn++) {
        long value = me * 1000L + turn;
        shmem_long_p(&heap[turn], value, right);
        CHECK(ARMCI_Put(&value, (long *)segments[right] + turn, sizeof value, right) == 0);
        long old;
        CHECK(ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &old, segments[0], 1, 0) == 0);
        shmem_long_atomic_add(&variable, 1, 0);
        if (turn % 2 == 0) {
            ARMCI_Barrier();
            shmem_barrier_all();
        } else {
            shmem_barrier_all();
            ARMCI_Barrier();
        }
        CHECK(heap[turn] == left * 1000L + turn && mine[turn] == left * 1000L + turn);
        shmem_sync_all();
    }
    if (me == 0) {
        CHECK(mine[0] == 10L * count && variable == 10L * count);
    }
    total = 0;
    CHECK(shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &total, &variable, 1) == 0);
    CHECK(total == 10L * count);
    CHECK(ARMCI_Free(segments[me]) == 0);
    shmem_free(heap);
    free(segments);
}

int main(int argc, char **argv)
{
    const int armci_first = argc > 1 && strcmp(argv[1], "armci") == 0;
#ifdef WITH_MPI
    const int own_mpi = argc > 2 && strcmp(argv[2], "own") == 0;
    int rank = -1, size = -1;
    if (own_mpi) {
        int provided;
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
    }
#endif
    if (armci_first) {
        ARMCI_Init();
        shmem_init();
    } else {
        shmem_init();
        ARMCI_Init();
    }
    shmem_init();
    me = shmem_my_pe();
    count = shmem_n_pes();
#ifdef WITH_MPI
    if (own_mpi) {
        CHECK(me == rank && count == size);
    }
#endif
    exchange();
    shmem_finalize();
    exchange();
    /* Most of the heap, which nobody frees. */
    CHECK(shmem_malloc((size_t)3 << 30) != NULL);
    /* Who leaves first leaves the other one its world. */
    if (argc > 3 && strcmp(argv[3], "armci") == 0) {
        ARMCI_Finalize();
        variable = 0;
        shmem_barrier_all();
        shmem_long_atomic_add(&variable, 2, (me + 1) % count);
        shmem_barrier_all();
        CHECK(variable == 2);
        shmem_finalize();
    } else {
        shmem_finalize();
        /* It comes again to the world that the other one keeps, with an empty heap. */
        shmem_init();
        CHECK(shmem_malloc((size_t)3 << 30) != NULL);
        exchange();
        shmem_finalize();
        void **segments = (void **)malloc((size_t)count * sizeof(void *));
        ARMCI_Malloc(segments, 8);
        long value = me;
        ARMCI_Put(&value, segments[(me + 1) % count], sizeof value, (me + 1) % count);
        ARMCI_Barrier();
        if (*(long *)segments[me] != (me + count - 1) % count) {
            ARMCI_Error("the put is not there", 1);
        }
        ARMCI_Free(segments[me]);
        free(segments);
        ARMCI_Finalize();
    }
#ifdef WITH_MPI
    if (own_mpi) {
        int sum = 0, one = 1;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (sum != count) {
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        MPI_Finalize();
    }
#endif
    if (me == 0) {
        printf("ok mixed %d\n", count);
    }
    return 0;
}
