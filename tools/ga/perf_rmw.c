/* Time of one ARMCI_Rmw, for every runtime alike: rank 0 adds to a counter of rank 1 alone, then all ranks add to it at
 * once. Prints microseconds a call, the best of several batches, and checks the sum. Needs two ranks or more.
 */
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

#include "armci.h"
#include "message.h"

#define BATCHES 10
#define CALLS 500

static double best_batch(int code, void *mine, void *counter) {
    double best = 1e9;
    int batch, call;
    for (batch = 0; batch < BATCHES; batch++) {
        double began = MPI_Wtime(), took;
        for (call = 0; call < CALLS; call++) ARMCI_Rmw(code, mine, counter, 1, 1);
        took = (MPI_Wtime() - began) * 1e6 / CALLS;
        if (took < best) best = took;
    }
    return best;
}

int main(int argc, char **argv) {
    int me, ranks, code;
    const int codes[2] = {ARMCI_FETCH_AND_ADD, ARMCI_FETCH_AND_ADD_LONG};
    const char *names[2] = {"int", "long"};
    MPI_Init(&argc, &argv);
    ARMCI_Init_args(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    if (ranks < 2) ARMCI_Error((char *)"perf_rmw needs two ranks", ranks);
    for (code = 0; code < 2; code++) {
        void **table = malloc((size_t)ranks * sizeof *table);
        long mine = 0, sum;
        ARMCI_Malloc(table, sizeof(long));
        if (me == 1) *(long *)table[1] = 0;
        ARMCI_Barrier();
        if (me == 0) printf("rmw %s alone %.4f\n", names[code], best_batch(codes[code], &mine, table[1]));
        ARMCI_Barrier();
        {
            double took = best_batch(codes[code], &mine, table[1]);
            if (me == 0) printf("rmw %s together %.4f\n", names[code], took);
        }
        ARMCI_AllFence();
        ARMCI_Barrier();
        sum = 0;
        ARMCI_Get(table[1], &sum, sizeof(long), 1);
        if (code == 0) sum = *(int *)&sum;
        if (sum != (long)(ranks + 1) * BATCHES * CALLS) ARMCI_Error((char *)"perf_rmw: the sum is wrong", (int)sum);
        ARMCI_Barrier();
        ARMCI_Free(table[me]);
        free(table);
    }
    ARMCI_Finalize();
    MPI_Finalize();
    return 0;
}
