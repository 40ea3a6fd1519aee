/* Messages and collectives of ARMCI on longarm, for programs without a message library of their own.
 *
 * Those without a group mean the default group. A scope says which of its members take part. The first call
 * joins the job, where ARMCI_Init or armci_msg_init has not. All members of a collective call make it in the same order; a buffer may be reused on return.
 */
#ifndef LONGARM_MESSAGE_H
#define LONGARM_MESSAGE_H
#define _MESSAGE_H_

#include "armci.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Types of elements. */
#define ARMCI_INT -99
#define ARMCI_LONG -101
#define ARMCI_LONG_LONG -102
#define ARMCI_LLONG ARMCI_LONG_LONG /* as ARMCI-MPI names it */
#define ARMCI_FLOAT -306
#define ARMCI_DOUBLE -307

/* Who takes part. */
#define SCOPE_ALL 333     /* all */
#define SCOPE_NODE 337    /* those of this node */
#define SCOPE_MASTERS 339 /* the first one of each node; the others return at once */

void armci_msg_init(int *argc, char ***argv); /* joins the job; collective */
void armci_msg_finalize(void);                /* leaves it; collective */
int armci_msg_me(void);                       /* the number of this process; works at any time */
int armci_msg_nproc(void);                    /* how many there are; works at any time */
void armci_msg_abort(int code);               /* ends the whole job */
double armci_timer(void);                     /* seconds since some moment */

/* Reductions take + * max min absmax absmin or && || & | and their spellings land lor band bor. */
void armci_msg_barrier(void); /* all meet; nothing is completed */
/* The bytes of the root, a number of the default group, get to all who take part. */
void armci_msg_bcast(void *buffer, int len, int root);
void armci_msg_brdcst(void *buffer, int len, int root);
void armci_msg_bcast_scope(int scope, void *buffer, int len, int root);
void armci_msg_reduce(void *x, int n, char *op, int type); /* the first process gets the result */
void armci_msg_reduce_scope(int scope, void *x, int n, char *op, int type);
void armci_msg_gop_scope(int scope, void *x, int n, char *op, int type); /* all get it */
void armci_msg_igop(int *x, int n, char *op);
void armci_msg_lgop(long *x, int n, char *op);
void armci_msg_llgop(long long *x, int n, char *op);
void armci_msg_fgop(float *x, int n, char *op);
void armci_msg_dgop(double *x, int n, char *op);
void armci_msg_sel_scope(int scope, void *x, int n, char *op, int type, int contribute); /* n bytes of the best */
#define armci_msg_sel(x, n, op, type, contribute) armci_msg_sel_scope(SCOPE_ALL, (x), (n), (op), (type), (contribute))
void armci_exchange_address(void *ptr_ar[], int n); /* each process fills in its own place */
void armci_msg_bintree(int scope, int *Root, int *Up, int *Left, int *Right); /* -1 where there is none */

/* A message is told by its tag and sender. Sending waits only where the node's cells for messages are full, until
 * the receiver makes a call. One that does not fit ends the job. */
void armci_msg_snd(int tag, void *buffer, int len, int to);
void armci_msg_rcv(int tag, void *buffer, int buflen, int *msglen, int from);
int armci_msg_rcvany(int tag, void *buffer, int buflen, int *msglen); /* who sent it */

/* Over the processes of this node. */
void armci_msg_clus_brdcst(void *buf, int len);
void armci_msg_clus_igop(int *x, int n, char *op);
void armci_msg_clus_lgop(long *x, int n, char *op);
void armci_msg_clus_llgop(long long *x, int n, char *op);
void armci_msg_clus_fgop(float *x, int n, char *op);
void armci_msg_clus_dgop(double *x, int n, char *op);

/* Over a group. A root is a number of the whole job. */
void armci_msg_group_barrier(ARMCI_Group *group);
void armci_msg_group_bcast_scope(int scope, void *buf, int len, int root, ARMCI_Group *group);
void armci_msg_group_gop_scope(int scope, void *x, int n, char *op, int type, ARMCI_Group *group);
void armci_msg_group_igop(int *x, int n, char *op, ARMCI_Group *group);
void armci_msg_group_lgop(long *x, int n, char *op, ARMCI_Group *group);
void armci_msg_group_llgop(long long *x, int n, char *op, ARMCI_Group *group);
void armci_msg_group_fgop(float *x, int n, char *op, ARMCI_Group *group);
void armci_msg_group_dgop(double *x, int n, char *op, ARMCI_Group *group);
void armci_exchange_address_grp(void *ptr_arr[], int n, ARMCI_Group *group);
/* The bytes of member grp_master get to grp_clus_nproc members from it on; others do not call. */
void armci_grp_clus_brdcst(void *buf, int len, int grp_master, int grp_clus_nproc, ARMCI_Group *mastergroup);

#if defined(__cplusplus)
}
#endif

#endif /* LONGARM_MESSAGE_H */
