/* Goes on until somebody ends it: all PEs update words of each other and meet, again and again. PE 0 says when they do. */
#include <shmem.h>

#include <stdio.h>

int main(void)
{
    shmem_init();
    static long counter;
    const int next = (shmem_my_pe() + 1) % shmem_n_pes();
    shmem_barrier_all();
    if (shmem_my_pe() == 0) {
        printf("%d PEs at work\n", shmem_n_pes());
        fflush(stdout);
    }
    for (;;) {
        shmem_atomic_inc(&counter, next);
        shmem_barrier_all();
    }
}
