/* Goes on until somebody ends it: all PEs update words of each other and meet, again and again. PE 0 says when they do. With an
   argument it starts so many seconds later. */
#include <shmem.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    if (count > 1)
        sleep((unsigned)atoi(arguments[1]));
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
