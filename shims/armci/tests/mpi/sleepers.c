/* Ranks that sleep in a collective to which rank 0 does not come. With the argument "fails" it reads what it is given to the
 * end and then names an address that is in no segment; otherwise it does nothing, for ever. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "armci.h"

int main(int argc, char **argv) {
    int me, count;
    char byte;
    MPI_Init(&argc, &argv);
    ARMCI_Init();
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    printf("rank %d is process %d of %d\n", me, (int)getpid(), (int)getppid());
    fflush(stdout);
    ARMCI_Barrier();
    if (me == 0) {
        if (argc < 2 || strcmp(argv[1], "fails") != 0) {
            for (;;) pause();
        }
        while (read(STDIN_FILENO, &byte, 1) == 1) {
        }
        ARMCI_Put(&byte, &byte, 1, count - 1);
    }
    ARMCI_Barrier();
    ARMCI_Finalize();
    MPI_Finalize();
    return 0;
}
