/* ARMCI on longarm: one-sided communication.
 *
 * A process reads, writes and updates segments of others, whatever these do. A segment is made by all processes of a
 * group together (ARMCI_Malloc) and named by its address in its owner's process, which is the same address in every
 * process of the owner's node. Processes are numbered from 0; a number is one of
 * the whole job, unless the call says that it counts in a group.
 *
 * Completion. A blocking put or accumulate returns when its source may be reused, a get when the bytes are here.
 * ARMCI_Fence makes what was issued towards a process visible there. Blocking calls of one process to one target take
 * effect in order; nonblocking ones when they are waited for.
 *
 * Results. 0 means done. Wrong arguments give the negative numbers at FAIL below and do nothing. An address in no
 * segment, and whatever else a program cannot go on from, ends the job with one line on stderr.
 *
 * Every call may be made by several threads at once, collective ones by one thread of each process.
 */
#ifndef LONGARM_ARMCI_H
#define LONGARM_ARMCI_H
/* The names that programs test for. */
#define _ARMCI_H
#define ARMCI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* ---- Results ---- */

#define FAIL -1  /* a pointer is NULL; a vector call: no descriptor */
#define FAIL2 -2 /* an array is NULL */
#define FAIL3 -3 /* a negative count; a vector call: fewer than 1 byte */
#define FAIL4 -4 /* too many or negative stride levels; a vector call: an empty list */
#define FAIL5 -5 /* there is no such process */
#define FAIL6 -6 /* the system refused; there is no memory */
#define FAIL7 -7
#define FAIL8 -8

/* ---- Start and end ---- */

int ARMCI_Init(void);                          /* joins the job; collective; again: no effect */
int ARMCI_Init_args(int *argc, char ***argv);  /* the same; the arguments stay as they are */
int ARMCI_Init_thread(int required);           /* the same; every thread level is there */
int ARMCI_Initialized(void);                   /* 1 between init and finalize */
int ARMCI_Finalize(void);                      /* ends ARMCI, however often init was called; again: no effect; collective; 0 */
void ARMCI_Cleanup(void);                      /* nothing: no segment has a name that could stay behind */
void ARMCI_Error(const char *msg, int code);   /* ends the whole job with a message */

/* ---- Segments ---- */

typedef long armci_size_t;
typedef int ARMCI_Group; /* 0: all processes */

int ARMCI_Malloc(void *ptr_arr[], armci_size_t bytes); /* over the default group; sizes may differ, 0 gives NULL */
int ARMCI_Free(void *ptr);                             /* collective; each process passes its own address or NULL */
int ARMCI_Malloc_group(void *ptr_arr[], armci_size_t bytes, ARMCI_Group *group);
int ARMCI_Free_group(void *ptr, ARMCI_Group *group);
int ARMCI_Malloc_memdev(void *ptr_arr[], armci_size_t bytes, const char *device); /* the device is ignored */
int ARMCI_Malloc_group_memdev(void *ptr_arr[], armci_size_t bytes, ARMCI_Group *group, const char *device);
int ARMCI_Free_memdev(void *ptr);
void *ARMCI_Malloc_local(armci_size_t bytes); /* memory of this process, NULL if there is none */
int ARMCI_Free_local(void *ptr);

/* A segment that one process makes alone. The struct goes to others as it is. */
typedef struct armci_meminfo_ds {
    char *armci_addr; /* its address in calls */
    char *addr;       /* its address at its owner */
    size_t size;      /* bytes */
    int cpid;         /* its owner */
    long idlist[128]; /* how others find it */
} armci_meminfo_t;

void ARMCI_Memget(size_t bytes, armci_meminfo_t *meminfo, int memflg); /* makes one; memflg is 0 */
void *ARMCI_Memat(armci_meminfo_t *meminfo, long offset);              /* makes one of another process known here */
void ARMCI_Memdt(armci_meminfo_t *meminfo, long offset);               /* forgets one of another process */
void ARMCI_Memctl(armci_meminfo_t *meminfo);                           /* frees it at its owner */

void ARMCI_Access_begin(void *ptr); /* loads and stores of a segment follow: a memory fence */
void ARMCI_Access_end(void *ptr);

/* ---- Put, get, accumulate ---- */

#define ARMCI_MAX_STRIDE_LEVEL 8

/* Pairs of addresses, all of the same length: as the library takes them. */
typedef struct {
    void **src_ptr_array;
    void **dst_ptr_array;
    int ptr_array_len;
    int bytes;
} longarm_giov_t;

/* Programs have it under this name. With ARMCI_GIOV_BYTES_FIRST defined `bytes` comes before `ptr_array_len`, as in ARMCI-MPI, for
 * programs that give the numbers by their place. */
#if defined(ARMCI_GIOV_BYTES_FIRST)
typedef struct {
    void **src_ptr_array;
    void **dst_ptr_array;
    int bytes;
    int ptr_array_len;
} armci_giov_t;
#else
typedef longarm_giov_t armci_giov_t;
#endif

/* Accumulate: target += scale * source. Each element is updated atomically with respect to other accumulates. */
#define ARMCI_ACC_OFF 36
#define ARMCI_ACC_INT (ARMCI_ACC_OFF + 1)
#define ARMCI_ACC_DBL (ARMCI_ACC_OFF + 2)
#define ARMCI_ACC_FLT (ARMCI_ACC_OFF + 3)
#define ARMCI_ACC_CPL (ARMCI_ACC_OFF + 4) /* two floats */
#define ARMCI_ACC_DCP (ARMCI_ACC_OFF + 5) /* two doubles */
#define ARMCI_ACC_LNG (ARMCI_ACC_OFF + 6)

/* From src to dst; src is here for a put, dst for a get. On return src may be reused, or the bytes are in dst. */
int ARMCI_Put(void *src, void *dst, int bytes, int proc);
int ARMCI_Get(void *src, void *dst, int bytes, int proc);
int ARMCI_Acc(int optype, void *scale, void *src, void *dst, int bytes, int proc);

/* Strided: count[0] bytes a run, count[i] times at stride level i, strides in bytes. Without levels the strides may be
 * NULL. */
int ARMCI_PutS(void *src_ptr, int src_stride_arr[], void *dst_ptr, int dst_stride_arr[], int count[],
               int stride_levels, int proc);
int ARMCI_GetS(void *src_ptr, int src_stride_arr[], void *dst_ptr, int dst_stride_arr[], int count[],
               int stride_levels, int proc);
int ARMCI_AccS(int optype, void *scale, void *src_ptr, int src_stride_arr[], void *dst_ptr, int dst_stride_arr[],
               int count[], int stride_levels, int proc);

/* Vector: all pairs of `len` lists. Of pairs with the same target a put leaves one, an accumulate adds all. */
int ARMCI_PutV(longarm_giov_t darr[], int len, int proc);
int ARMCI_GetV(longarm_giov_t darr[], int len, int proc);
int ARMCI_AccV(int op, void *scale, longarm_giov_t darr[], int len, int proc);

/* One value, by value. The get calls have no code to give: what is wrong ends the job. */
int ARMCI_PutValueInt(int src, void *dst, int proc);
int ARMCI_PutValueLong(long src, void *dst, int proc);
int ARMCI_PutValueFloat(float src, void *dst, int proc);
int ARMCI_PutValueDouble(double src, void *dst, int proc);
int ARMCI_GetValueInt(void *src, int proc);
long ARMCI_GetValueLong(void *src, int proc);
float ARMCI_GetValueFloat(void *src, int proc);
double ARMCI_GetValueDouble(void *src, int proc);

/* Put, then an integer of the target is set: who sees the integer sees the bytes. */
int ARMCI_Put_flag(void *src, void *dst, int bytes, int *f, int v, int proc);
int ARMCI_PutS_flag(void *src_ptr, int src_stride_arr[], void *dst_ptr, int dst_stride_arr[], int count[],
                    int stride_levels, int *flag, int val, int proc);
int ARMCI_PutS_flag_dir(void *src_ptr, int src_stride_arr[], void *dst_ptr, int dst_stride_arr[], int count[],
                        int stride_levels, int *flag, int val, int proc);

/* Notices: counted, and behind what was put before. */
int armci_notify(int proc);                 /* the number of the notice */
int armci_notify_wait(int proc, int *pval); /* how many have come; *pval: how many were waited for, with this one */

void ARMCI_Copy(void *src, void *dst, int n); /* bytes of this process */
#define ARMCI_Put1(src, dst, bytes, proc) (memcpy((dst), (src), (size_t)(bytes)), 0)

/* Packing and unpacking of a patch of this process. */
void armci_write_strided(void *ptr, int stride_levels, int stride_arr[], int count[], char *buf);
void armci_read_strided(void *ptr, int stride_levels, int stride_arr[], int count[], char *buf);

/* ---- Nonblocking ---- */

/* Names transfers that were started under it. Any number may be; a NULL handle makes an implicit transfer. */
typedef struct {
    uint64_t longarm_[4];
} armci_hdl_t;

#define armci_req_t armci_hdl_t

/* Makes a handle that names nothing. */
#define ARMCI_INIT_HANDLE(hdl) ((void)memset((hdl), 0, sizeof(armci_hdl_t)))

/* The bytes here belong to the transfer until it was waited for; lists, strides, counts, scales and single values may
 * be reused at once. Codes are those of the blocking calls. Complete means complete here: a fence goes further. */
int ARMCI_NbPut(void *src, void *dst, int bytes, int proc, armci_hdl_t *nb_handle);
int ARMCI_NbGet(void *src, void *dst, int bytes, int proc, armci_hdl_t *nb_handle);
int ARMCI_NbAcc(int optype, void *scale, void *src, void *dst, int bytes, int proc, armci_hdl_t *nb_handle);
int ARMCI_NbPutS(void *src_ptr, int src_stride_arr[], void *dst_ptr, int dst_stride_arr[], int count[],
                 int stride_levels, int proc, armci_hdl_t *nb_handle);
int ARMCI_NbGetS(void *src_ptr, int src_stride_arr[], void *dst_ptr, int dst_stride_arr[], int count[],
                 int stride_levels, int proc, armci_hdl_t *nb_handle);
int ARMCI_NbAccS(int optype, void *scale, void *src_ptr, int src_stride_arr[], void *dst_ptr, int dst_stride_arr[],
                 int count[], int stride_levels, int proc, armci_hdl_t *nb_handle);
int ARMCI_NbPutV(longarm_giov_t darr[], int len, int proc, armci_hdl_t *nb_handle);
int ARMCI_NbGetV(longarm_giov_t darr[], int len, int proc, armci_hdl_t *nb_handle);
int ARMCI_NbAccV(int op, void *scale, longarm_giov_t darr[], int len, int proc, armci_hdl_t *nb_handle);
int ARMCI_NbPutValueInt(int src, void *dst, int proc, armci_hdl_t *nb_handle);
int ARMCI_NbPutValueLong(long src, void *dst, int proc, armci_hdl_t *nb_handle);
int ARMCI_NbPutValueFloat(float src, void *dst, int proc, armci_hdl_t *nb_handle);
int ARMCI_NbPutValueDouble(double src, void *dst, int proc, armci_hdl_t *nb_handle);

int ARMCI_Wait(armci_hdl_t *nb_handle); /* for the transfers of a handle; one that names nothing is no error */
int ARMCI_Test(armci_hdl_t *nb_handle); /* 0: complete, 1: not yet */
int ARMCI_WaitAll(void);                /* for the implicit transfers */
int ARMCI_WaitProc(int proc);           /* for the implicit transfers with one process */
void ARMCI_SET_AGGREGATE_HANDLE(armci_hdl_t *nb_handle);   /* transfers with one process gather under a handle */
void ARMCI_UNSET_AGGREGATE_HANDLE(armci_hdl_t *nb_handle); /* no more do; they are waited for as others */

/* ---- Read-modify-write, mutexes, order ---- */

#define ARMCI_SWAP 10
#define ARMCI_SWAP_LONG 11
#define ARMCI_FETCH_AND_ADD 12
#define ARMCI_FETCH_AND_ADD_LONG 13

/* Adds `extra` to an int or a long of a process, or swaps it with *ploc. The old value is in *ploc on return. Atomic
 * with respect to other such calls. */
int ARMCI_Rmw(int op, void *ploc, void *prem, int extra, int proc);

int ARMCI_Create_mutexes(int num); /* collective; num may differ; -1: negative, -2: more than 32768 */
int ARMCI_Destroy_mutexes(void);   /* collective */
void ARMCI_Lock(int mutex, int proc);   /* waits for its turn; ranks of proc's node that spin may each have one before the next that waits */
void ARMCI_Unlock(int mutex, int proc); /* what was put before is visible to whoever takes it next */

void ARMCI_Fence(int proc);                /* what was issued towards a process from here is visible there */
void ARMCI_AllFence(void);                 /* the same towards all */
void ARMCI_GroupFence(ARMCI_Group *group); /* the same towards the members of a group */
void ARMCI_Barrier(void); /* ARMCI_AllFence everywhere, then the default group meets */

/* ---- Groups and nodes ---- */

/* The list holds numbers in the default group, and in its order the members are numbered. Collective over them. */
void ARMCI_Group_create(int n, int *pid_list, ARMCI_Group *group_out);
/* The same with numbers in another group. */
void ARMCI_Group_create_child(int n, int *pid_list, ARMCI_Group *group_out, ARMCI_Group *group_parent);
void ARMCI_Group_free(ARMCI_Group *group);                 /* not the group of all */
int ARMCI_Group_rank(ARMCI_Group *group, int *rank);       /* -1 if this process is not in it */
void ARMCI_Group_size(ARMCI_Group *group, int *size);      /* how many members it has */
void ARMCI_Group_set_default(ARMCI_Group *group);          /* calls without a group mean this one from now on */
void ARMCI_Group_get_default(ARMCI_Group *group_out);      /* which one they mean */
void ARMCI_Group_get_world(ARMCI_Group *group_out);        /* the group of all */
int ARMCI_Absolute_id(ARMCI_Group *group, int group_rank); /* the number in the job of a member */

typedef int armci_domain_t;
#define ARMCI_DOMAIN_SMP 0 /* processes that share memory: a node */
int armci_domain_nprocs(armci_domain_t domain, int id);       /* processes of a node; below 0: of this one */
int armci_domain_id(armci_domain_t domain, int glob_proc_id); /* the node of a process */
int armci_domain_glob_proc_id(armci_domain_t domain, int id, int loc_proc_id); /* a process of a node, from 0 */
int armci_domain_my_id(armci_domain_t domain);             /* this node */
int armci_domain_count(armci_domain_t domain);             /* how many nodes there are */
int armci_domain_same_id(armci_domain_t domain, int proc); /* 1: the process is on this node */
int armci_sameclusnode(int proc);                          /* the same */
int ARMCI_Same_node(int proc);              /* the same: its segments can be read and written by their addresses */
int ARMCI_Uses_shm(void);                   /* 1: segments are shared memory */
int ARMCI_Uses_shm_grp(ARMCI_Group *group); /* the same for the segments of a group */
void ARMCI_Set_shm_limit(unsigned long shmemlimit); /* nothing: memory is used where it is touched */

/* ---- Stride iterator ---- */

#if !defined(_STRIDE_INFO_H_)
#define _STRIDE_INFO_H_
typedef struct {
    char *base_ptr;
    int stride_levels;
    int stride_arr[ARMCI_MAX_STRIDE_LEVEL];
    int seg_count[ARMCI_MAX_STRIDE_LEVEL + 1];
    int size, pos, itr[ARMCI_MAX_STRIDE_LEVEL];
} stride_info_t;

/* Starts at the first run of a patch. Levels that are too many and counts below 1 end the job. */
void armci_stride_info_init(stride_info_t *sinfo, void *base_ptr, int stride_levels, const int *stride_arr,
                            const int *seg_count);
void armci_stride_info_destroy(stride_info_t *sinfo);  /* ends; there is nothing to free */
int armci_stride_info_count(stride_info_t *sinfo);     /* how many runs there are */
int armci_stride_info_pos(stride_info_t *sinfo);       /* which is the current one, from 0 */
void armci_stride_info_next(stride_info_t *sinfo);     /* goes on; behind the last run this ends the job */
void *armci_stride_info_seg_ptr(stride_info_t *sinfo); /* where the run is */
int armci_stride_info_seg_size(stride_info_t *sinfo);  /* its bytes */
int armci_stride_info_seg_off(stride_info_t *sinfo);   /* bytes from the start of the patch to it */
int armci_stride_info_size(stride_info_t *sinfo);      /* as the count */
int armci_stride_info_has_more(stride_info_t *sinfo);  /* 0 behind the last run */
#endif

/* ---- Global procedure calls ---- */

#if !defined(__GPCDEF)
#define __GPCDEF
#define GPC_INIT 1
#define GPC_PROBE 2
#define GPC_WAIT 3
#define GPC_DONE 4
#define GPC_PENDING 5

typedef struct {
    int proc;
    armci_hdl_t ahdl;
} gpc_hdl_t;

/* What runs at process `to` for `from`: it gets a header and data, and fills those of the answer, up to rhlen and rdlen
 * bytes, whose lengths it stores. It gives GPC_DONE; if it does not, it is called once more, with GPC_WAIT. */
typedef int (*armci_gpc_function_t)(int to, int from, void *hdr, int hlen, void *data, int dlen, void *rhdr, int rhlen,
                                    int *rhsize, void *rdata, int rdlen, int *rdsize, int rtype);

int ARMCI_Gpc_register(armci_gpc_function_t func); /* makes a function known; collective; the same number everywhere */
void ARMCI_Gpc_release(int handle);                /* forgets it; collective */
void *ARMCI_Gpc_translate(void *ptr, int proc, int from); /* a pointer of `proc`, as a function there can use it */
void ARMCI_Gpc_lock(int proc);   /* takes the mutex of a process that its functions share with everybody */
void ARMCI_Gpc_unlock(int proc); /* gives it back */
int ARMCI_Gpc_trylock(int proc); /* 1: taken, 0: somebody has it */
/* Runs a function at a process. The answer is there on return, or with a handle after ARMCI_Gpc_wait. -1: wrong
 * arguments. */
int ARMCI_Gpc_exec(int h, int p, void *hdr, int hlen, void *data, int dlen, void *rhdr, int rhlen, void *rdata,
                   int rdlen, gpc_hdl_t *nbh);
int ARMCI_Get_gpc_hlen(void);               /* headers are shorter than this */
int ARMCI_Get_gpc_dlen(void);               /* data is shorter than this */
void ARMCI_Gpc_init_handle(gpc_hdl_t *nbh); /* makes a handle that names no call */
void ARMCI_Gpc_wait(gpc_hdl_t *nbh);        /* for the answer; a handle that names no call is no error */
#endif

/* ---- Checkpoints: not supported; each says so and gives -1 ---- */

#define ARMCI_CKPT 0
#define ARMCI_RESTART 1
#define ARMCI_Restart_simulate armci_irecover

/* What a checkpoint would save. */
typedef struct {
    void **ptr_arr;
    size_t *sz;
    int *saveonce;
    int count;
} armci_ckpt_ds_t;

void ARMCI_Ckpt_create_ds(armci_ckpt_ds_t *ckptds, int count); /* makes the lists, zeroed, which nobody reads */
int ARMCI_Ckpt_init(char *filename, ARMCI_Group *grp, int savestack, int saveheap, armci_ckpt_ds_t *ckptds);
int ARMCI_Ckpt(int rid);
void ARMCI_Ckpt_Recover(int rid, int iamreplacement);
void ARMCI_Ckpt_finalize(int rid);
int armci_irecover(int rid, int iamreplacement);
ARMCI_Group *ARMCI_Get_ft_group(void); /* those that compute: all */
void armci_set_spare_procs(int spare); /* none is kept back */

/* ---- Ends with a message ---- */

extern char *mp_group_name; /* NULL: of a message library of old */
int dassertp_fail(const char *cond_string, const char *file, const char *func, unsigned int line, int code);
#define derr_printf printf

int armci_msg_me(void); /* the number of this process, see message.h */

/* A program may say itself how it names functions. */
#if !defined(FUNCTION_NAME)
#define FUNCTION_NAME __func__
#endif

/* Ends the job if a condition does not hold, after printing; `enable` switches that on. */
#undef dassertc
#define dassertc(enable, condition, print_arguments, code)                                                             \
    do {                                                                                                               \
        if ((enable) && !(condition)) {                                                                                \
            derr_printf print_arguments;                                                                               \
            dassertp_fail(#condition, __FILE__, FUNCTION_NAME, __LINE__, (code));                                      \
        }                                                                                                              \
    } while (0)
#undef dassertp
#define dassertp(enable, condition, print_arguments) dassertc(enable, condition, print_arguments, 1)
#undef dassert
#define dassert(enable, condition) dassertc(enable, condition, ("%s", ""), 1)
#undef dassert1
#define dassert1(enable, condition, value)                                                                             \
    dassertc(enable, condition, ("%d: the value is %d\n", armci_msg_me(), (int)(value)), 1)

/* Ends the job with a text and numbers. */
#define armci_die(text, code) dassertc(1, 0, ("%d: %s (%d)\n", armci_msg_me(), (text), (code)), (code))
#define armci_die2(text, code, other)                                                                                  \
    dassertc(1, 0, ("%d: %s (%d, %d)\n", armci_msg_me(), (text), (code), (other)), (code))

#if defined(__cplusplus)
}
#endif

#include "armcix.h"
#include "message.h"

#if defined(ARMCI_GIOV_BYTES_FIRST)
#include "armci_giov.h"
#endif

#include "armci_mpi.h"

#endif /* LONGARM_ARMCI_H */

/* What takes or gives an MPI communicator, once mpi.h was included. */
#if defined(MPI_VERSION) && !defined(LONGARM_ARMCI_MPI_H)
#define LONGARM_ARMCI_MPI_H
#if defined(__cplusplus)
extern "C" {
#endif
int ARMCI_Init_mpi_comm(MPI_Comm comm);
int ARMCI_Init_thread_comm(int required, MPI_Comm comm);
MPI_Comm armci_group_comm(ARMCI_Group *group); /* belongs to the library */
#if defined(__cplusplus)
}
#endif
#endif
