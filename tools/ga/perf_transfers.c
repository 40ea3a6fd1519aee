/* Times of put, get, accumulate, strided transfers, read-modify-write, barrier and reduction between the first and the
 * last process, through ARMCI's interface: the same source for longarm and for ComEx. Prints the best of five batches.
 *
 *   mpicc -O2 -I$PREFIX/include perf_transfers.c -o perf_transfers -L$PREFIX/lib -larmci -Wl,-rpath,$PREFIX/lib
 *   mpiexec -n 2 ./perf_transfers            (ComEx MPI-PR: -n 3, one process is the runtime's)
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "armci.h"
#include "message.h"

enum { BATCHES = 5, SEGMENT_BYTES = 1 << 24, ROWS = 64, PITCH_BYTES = 8192 };

static char *local;
static void **segments;
static int target;
static double one = 1.0;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void put(int bytes) { ARMCI_Put(local, segments[target], bytes, target); }
static void get(int bytes) { ARMCI_Get(segments[target], local, bytes, target); }
static void acc(int bytes) { ARMCI_Acc(ARMCI_ACC_DBL, &one, local, segments[target], bytes, target); }

static void put_rows(int bytes) {
    int count[2], here[1], there[1] = {PITCH_BYTES};
    count[0] = here[0] = bytes;
    count[1] = ROWS;
    ARMCI_PutS(local, here, segments[target], there, count, 1, target);
}

static void get_rows(int bytes) {
    int count[2], here[1], there[1] = {PITCH_BYTES};
    count[0] = here[0] = bytes;
    count[1] = ROWS;
    ARMCI_GetS(segments[target], there, local, here, count, 1, target);
}

static void acc_rows(int bytes) {
    int count[2], here[1], there[1] = {PITCH_BYTES};
    count[0] = here[0] = bytes;
    count[1] = ROWS;
    ARMCI_AccS(ARMCI_ACC_DBL, &one, local, here, segments[target], there, count, 1, target);
}

static void fetch_and_add(int bytes) {
    long old = bytes;
    ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &old, segments[target], 1, target);
}

/* Nanoseconds of one call, the best of some batches. */
static double best_ns(void (*call)(int), int bytes, int calls) {
    double best = 1e30;
    int batch, i;
    for (batch = 0; batch < BATCHES; batch++) {
        double began = now(), ns;
        for (i = 0; i < calls; i++) call(bytes);
        ns = (now() - began) / calls * 1e9;
        if (ns < best) best = ns;
        ARMCI_Fence(target);
    }
    return best;
}

int main(int argc, char **argv) {
    int me, count, bytes, i;
    double began, value = 1.0;
    MPI_Init(&argc, &argv);
    ARMCI_Init();
    me = armci_msg_me();
    count = armci_msg_nproc();
    target = count - 1;
    segments = (void **)malloc((size_t)count * sizeof(void *));
    local = (char *)calloc(1, SEGMENT_BYTES);
    ARMCI_Malloc(segments, SEGMENT_BYTES);
    memset(segments[me], 0, SEGMENT_BYTES);
    ARMCI_Barrier();
    if (me == 0) {
        printf("%10s %12s %12s %12s   (ns)\n", "bytes", "put", "get", "accumulate");
        for (bytes = 8; bytes <= 1 << 22; bytes *= 2) {
            int calls = bytes < 65536 ? 20000 : bytes < (1 << 20) ? 1000 : 50;
            printf("%10d %12.1f %12.1f %12.1f\n", bytes, best_ns(put, bytes, calls), best_ns(get, bytes, calls),
                   best_ns(acc, bytes, calls));
        }
        printf("%d rows of bytes, %d apart\n", ROWS, PITCH_BYTES);
        for (bytes = 8; bytes <= 4096; bytes *= 4) {
            printf("%10d %12.1f %12.1f %12.1f\n", bytes, best_ns(put_rows, bytes, 2000), best_ns(get_rows, bytes, 2000),
                   best_ns(acc_rows, bytes, 2000));
        }
        printf("fetch and add %.1f ns\n", best_ns(fetch_and_add, 8, 2000));
    }
    ARMCI_Barrier();
    began = now();
    for (i = 0; i < 10000; i++) ARMCI_Barrier();
    if (me == 0) printf("barrier %.2f us\n", (now() - began) / 10000 * 1e6);
    began = now();
    for (i = 0; i < 10000; i++, value = 1.0) armci_msg_dgop(&value, 1, "+");
    if (me == 0) printf("sum of one double over all %.2f us\n", (now() - began) / 10000 * 1e6);
    ARMCI_Free(segments[me]);
    ARMCI_Finalize();
    MPI_Finalize();
    return 0;
}
