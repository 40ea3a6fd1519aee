/* What the examples share. */
#ifndef LONGARM_SHMEM_EXAMPLE_COMMON_H
#define LONGARM_SHMEM_EXAMPLE_COMMON_H

#include <shmem.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the job if something that has to hold does not. */
static inline void require(int holds, const char *what)
{
    if (!holds) {
        printf("PE %d: %s\n", shmem_my_pe(), what);
        fflush(stdout);
        shmem_global_exit(1);
    }
}

/* Numbers that look random and are the same everywhere. */
static inline uint64_t scramble(uint64_t number)
{
    number += 0x9e3779b97f4a7c15u;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
    number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
    return number ^ (number >> 31);
}

/* All have come this far: says so and leaves. */
static inline void finish(const char *name)
{
    shmem_barrier_all();
    if (shmem_my_pe() == 0) {
        printf("ok %s\n", name);
    }
    shmem_finalize();
}

#endif
