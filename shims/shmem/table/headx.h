/* What is no part of the specification, and is called all the same. */

#include <shmem.h>

#define HAVE_SHMEMX_WTIME 1

/* The processes of this node. */
#define SHMEMX_TEAM_NODE SHMEM_TEAM_SHARED
#define SHMEMX_TEAM_HOST SHMEM_TEAM_SHARED

/* For shmem_malloc_with_hints: leave before all have come. Here it is a hint that changes nothing. */
#define SHMEMX_MALLOC_NO_BARRIER (1L << 2)
/* For shmem_ctx_create: gather small puts. Here it is a hint that changes nothing. */
#define SHMEMX_CTX_BOUNCE_BUFFER (1L << 31)

/* Operations since the start, all contexts together: those of a kind that were issued ("pending"), and those that have completed.
   Under these names Sandia OpenSHMEM has them. */
typedef struct {
    uint64_t pending_put;
    uint64_t pending_get;
    uint64_t completed_put;
    uint64_t completed_get;
    uint64_t target;
} shmemx_pcntr_t;

/* Gives the number of the calling thread. */
typedef uint64_t (*shmemx_gettid_t)(void);
