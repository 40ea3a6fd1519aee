/* Starts and ends, and says who was there: how long that takes is measured from outside. */
#include <shmem.h>
#include <stdio.h>

int main(void)
{
    shmem_init();
    if (shmem_my_pe() == 0) {
        printf("hello from %d PEs\n", shmem_n_pes());
    }
    shmem_finalize();
    return 0;
}
