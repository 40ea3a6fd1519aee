/* OpenSHMEM 1.6 on longarm: C99, C11 with generic names, C++ with overloads. */

#include <stddef.h>
#include <stdint.h>

#define SHMEM_MAJOR_VERSION 1
#define SHMEM_MINOR_VERSION 6
#define SHMEM_MAX_NAME_LEN 256
#define SHMEM_VENDOR_STRING "longarm"
/* For programs that ask which implementation this is. */
#define SHMEM_VENDOR_LONGARM 1

#define SHMEM_THREAD_SINGLE 0
#define SHMEM_THREAD_FUNNELED 1
#define SHMEM_THREAD_SERIALIZED 2
#define SHMEM_THREAD_MULTIPLE 3

#define SHMEM_CMP_EQ 1
#define SHMEM_CMP_NE 2
#define SHMEM_CMP_GT 3
#define SHMEM_CMP_GE 4
#define SHMEM_CMP_LT 5
#define SHMEM_CMP_LE 6

#define SHMEM_SIGNAL_SET 0
#define SHMEM_SIGNAL_ADD 1

#define SHMEM_CTX_PRIVATE (1L << 0)
#define SHMEM_CTX_SERIALIZED (1L << 1)
#define SHMEM_CTX_NOSTORE (1L << 2)

#define SHMEM_CTX_SESSION_BATCH (1L << 0)
#define SHMEM_CTX_SESSION_TOTAL_OPS (1L << 0)

#define SHMEM_MALLOC_ATOMICS_REMOTE (1L << 0)
#define SHMEM_MALLOC_SIGNAL_REMOTE (1L << 1)

#define SHMEM_TEAM_NUM_CONTEXTS (1L << 0)

/* Pointers to types of their own, so that generic names and overloads tell them apart. What they point to is nowhere. */
typedef struct shmem_ctx_handle_ {
    int nothing;
} *shmem_ctx_t;
typedef struct shmem_team_handle_ {
    int nothing;
} *shmem_team_t;

/* Constants: they may stand in the initialiser of a static variable. */
#ifdef __cplusplus
#define SHMEM_NO_HANDLE_(type) (static_cast<type>(0))
#define SHMEM_HANDLE_(type, number) (reinterpret_cast<type>(static_cast<size_t>(number)))
#else
#define SHMEM_NO_HANDLE_(type) ((type)0)
#define SHMEM_HANDLE_(type, number) ((type)(number))
#endif
#define SHMEM_CTX_INVALID SHMEM_NO_HANDLE_(shmem_ctx_t)
#define SHMEM_CTX_DEFAULT SHMEM_HANDLE_(shmem_ctx_t, 1)
#define SHMEM_TEAM_INVALID SHMEM_NO_HANDLE_(shmem_team_t)
#define SHMEM_TEAM_WORLD SHMEM_HANDLE_(shmem_team_t, 1)
#define SHMEM_TEAM_SHARED SHMEM_HANDLE_(shmem_team_t, 2)

typedef struct {
    int num_contexts;
} shmem_team_config_t;

typedef struct {
    size_t total_ops;
} shmem_ctx_session_config_t;

/* Without complex.h, which would take the name I from programs. */
__extension__ typedef __complex__ float shmem_complexf_;
__extension__ typedef __complex__ double shmem_complexd_;

/* Deprecated: for collectives over active sets. The arrays are not used. */
#define SHMEM_SYNC_VALUE (-1L)
#define SHMEM_SYNC_SIZE 16
#define SHMEM_BARRIER_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_BCAST_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_COLLECT_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALL_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALLS_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_MIN_WRKDATA_SIZE 1

/* Deprecated names. */
#define _SHMEM_MAJOR_VERSION SHMEM_MAJOR_VERSION
#define _SHMEM_MINOR_VERSION SHMEM_MINOR_VERSION
#define _SHMEM_MAX_NAME_LEN SHMEM_MAX_NAME_LEN
#define _SHMEM_VENDOR_STRING SHMEM_VENDOR_STRING
#define _SHMEM_CMP_EQ SHMEM_CMP_EQ
#define _SHMEM_CMP_NE SHMEM_CMP_NE
#define _SHMEM_CMP_GT SHMEM_CMP_GT
#define _SHMEM_CMP_GE SHMEM_CMP_GE
#define _SHMEM_CMP_LT SHMEM_CMP_LT
#define _SHMEM_CMP_LE SHMEM_CMP_LE
#define _SHMEM_SYNC_VALUE SHMEM_SYNC_VALUE
#define _SHMEM_SYNC_SIZE SHMEM_SYNC_SIZE
#define _SHMEM_BARRIER_SYNC_SIZE SHMEM_BARRIER_SYNC_SIZE
#define _SHMEM_BCAST_SYNC_SIZE SHMEM_BCAST_SYNC_SIZE
#define _SHMEM_COLLECT_SYNC_SIZE SHMEM_COLLECT_SYNC_SIZE
#define _SHMEM_REDUCE_SYNC_SIZE SHMEM_REDUCE_SYNC_SIZE
#define _SHMEM_ALLTOALL_SYNC_SIZE SHMEM_ALLTOALL_SYNC_SIZE
#define _SHMEM_ALLTOALLS_SYNC_SIZE SHMEM_ALLTOALLS_SYNC_SIZE
#define _SHMEM_REDUCE_MIN_WRKDATA_SIZE SHMEM_REDUCE_MIN_WRKDATA_SIZE
