/* A program that leaves MPI to the library: it is initialised by ARMCI_Init, and finalized at the end of the process. */
#include <stdio.h>

#include "armci.h"
#include "message.h"

int main(void)
{
    int round, sum;
    for (round = 0; round < 2; round++) {
        if (ARMCI_Init() != 0) return 3;
        sum = 1;
        armci_msg_igop(&sum, 1, "+");
        if (sum != armci_msg_nproc()) return 4;
        ARMCI_Finalize();
    }
    if (armci_msg_me() == 0) printf("ok %d processes\n", armci_msg_nproc());
    return 0;
}
