/* What is no part of the specification, and is called all the same. */

#include <shmem.h>

#define HAVE_SHMEMX_WTIME 1

/* The processes of this node. */
#define SHMEMX_TEAM_NODE SHMEM_TEAM_SHARED
#define SHMEMX_TEAM_HOST SHMEM_TEAM_SHARED

/* Operations that were issued and have completed, all contexts together. */
typedef struct {
    uint64_t pending_write;
    uint64_t pending_read;
    uint64_t completed_write;
    uint64_t completed_read;
    uint64_t issued_write;
    uint64_t issued_read;
    uint64_t target;
} shmemx_pcntr_t;

/* Gives the number of the calling thread. */
typedef uint64_t (*shmemx_gettid_t)(void);
