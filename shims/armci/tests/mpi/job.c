/* A job that MPI has started: communicators of groups, data between all ranks, ARMCI started twice. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "armci.h"
#include "message.h"

#define CHECK(condition)                                                                            \
    do {                                                                                            \
        if (!(condition)) {                                                                         \
            fprintf(stderr, "%s:%d: rank %d: %s does not hold\n", __FILE__, __LINE__, me, #condition); \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                           \
        }                                                                                           \
    } while (0)

static int me, count;

/* Every rank adds to the segment of its right neighbour, by put, accumulate and rmw. */
static void exchange(void) {
    void **segments = (void **)malloc((size_t)count * sizeof(void *));
    double one = 1.0, numbers[100];
    long old = 0;
    int i, right = (me + 1) % count, left = (me + count - 1) % count;
    CHECK(ARMCI_Malloc(segments, 100 * sizeof(double) + sizeof(long)) == 0);
    memset(segments[me], 0, 100 * sizeof(double) + sizeof(long));
    ARMCI_Barrier();
    for (i = 0; i < 100; i++) numbers[i] = me * 1000.0 + i;
    CHECK(ARMCI_Put(numbers, segments[right], sizeof numbers, right) == 0);
    CHECK(ARMCI_Acc(ARMCI_ACC_DBL, &one, numbers, segments[right], sizeof numbers, right) == 0);
    for (i = 0; i < count; i++) {
        long *counter = (long *)(void *)((double *)segments[i] + 100);
        CHECK(ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &old, counter, 2, i) == 0);
    }
    ARMCI_Barrier();
    for (i = 0; i < 100; i++) CHECK(((double *)segments[me])[i] == 2 * (left * 1000.0 + i));
    CHECK(*(long *)(void *)((double *)segments[me] + 100) == 2 * count);
    for (i = 0; i < count; i++) {
        /* An address of a neighbour on the node may be followed. */
        if (ARMCI_Same_node(i)) CHECK(((double *)segments[i])[99] == 2 * (((i + count - 1) % count) * 1000.0 + 99));
    }
    ARMCI_Barrier();
    CHECK(ARMCI_Free(segments[me]) == 0);
    free(segments);
}

/* A group of the even ranks: its communicator knows the same order. */
static void groups(void) {
    int *evens = (int *)malloc((size_t)count * sizeof(int));
    int i, size = 0, rank = -2, members, communicator_rank, communicator_size;
    ARMCI_Group group, world;
    MPI_Comm communicator;
    MPI_Errhandler handler;
    for (i = 0; i < count; i += 2) evens[size++] = i;
    ARMCI_Group_get_world(&world);
    communicator = armci_group_comm(&world);
    MPI_Comm_size(communicator, &communicator_size);
    CHECK(communicator_size == count);
    /* The program's own way to take errors is that of every communicator it gets. */
    MPI_Comm_get_errhandler(communicator, &handler);
    CHECK(handler == MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    if (me % 2 == 0) {
        ARMCI_Group_create(size, evens, &group);
        ARMCI_Group_size(&group, &members);
        CHECK(members == size);
        CHECK(ARMCI_Group_rank(&group, &rank) == 0 && rank == me / 2);
        communicator = armci_group_comm(&group);
        MPI_Comm_rank(communicator, &communicator_rank);
        MPI_Comm_size(communicator, &communicator_size);
        CHECK(communicator_rank == rank && communicator_size == size);
        armci_msg_group_barrier(&group);
        ARMCI_Group_free(&group);
    }
    free(evens);
}

int main(int argc, char **argv) {
    int mpi_rank, mpi_count, round;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi_count);
    me = armci_msg_me();
    count = armci_msg_nproc();
    CHECK(me == mpi_rank && count == mpi_count);
    for (round = 0; round < 2; round++) {
        CHECK(ARMCI_Init() == 0);
        CHECK(ARMCI_Initialized());
        exchange();
        groups();
        if (argc > 1 && me == atoi(argv[1])) {
            ARMCI_Put(&round, &mpi_rank, sizeof round, (me + 1) % count);
        }
        ARMCI_Finalize();
        CHECK(!ARMCI_Initialized());
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (me == 0) printf("ok %d processes\n", count);
    MPI_Finalize();
    return 0;
}
