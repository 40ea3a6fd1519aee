/* The work every peer does is in driver.c; a peer is one file that fills in these calls.
 * Offsets address the peer's symmetric region; rank 0 drives, the last rank is the target. */
#ifndef BENCH_H
#define BENCH_H
#include <stddef.h>
#include <stdint.h>

#define REGION ((size_t)80 << 20)

extern int be_me, be_np;

void  be_init(int *argc, char ***argv);   /* sets be_me, be_np; allocates REGION bytes */
void  be_fini(void);
void  be_barrier(void);                   /* also where a waiting target makes progress */
char *be_region(void);                    /* this rank's own part of the symmetric region */
void *be_local(size_t n);                 /* a private buffer for the origin side */

/* put: done remotely on return. nbput: issue only. flush: all issued puts done remotely. */
void be_put(size_t off, const void *src, size_t n, int pe);
void be_nbput(size_t off, const void *src, size_t n, int pe);
void be_flush(int pe);
/* get: done on return. nbget: issue only. waitget: all issued gets have arrived. */
void be_get(void *dst, size_t off, size_t n, int pe);
void be_nbget(void *dst, size_t off, size_t n, int pe);
void be_waitget(int pe);

/* The rest return 0, or -1 where the API has no such call. */
/* rows x rowbytes, remote pitch in bytes, local side packed; done (remotely) on return */
int be_puts(size_t off, size_t pitch, const void *src, size_t rowbytes, size_t rows, int pe);
int be_gets(void *dst, size_t off, size_t pitch, size_t rowbytes, size_t rows, int pe);
int be_accs(size_t off, size_t pitch, const double *src, size_t rowbytes, size_t rows, int pe);
/* the API's element-strided call, column by column of doubles (OpenSHMEM iput, iget) */
int be_iput(size_t off, size_t pitch, const void *src, size_t rowbytes, size_t rows, int pe);
int be_iget(void *dst, size_t off, size_t pitch, size_t rowbytes, size_t rows, int pe);
int be_acc(size_t off, const double *src, size_t ndbl, int pe);      /* done remotely on return */
int be_fadd(size_t off, int64_t add, int64_t *old, int pe);
int be_cas(size_t off, int64_t cmp, int64_t val, int64_t *old, int pe);
int be_swap(size_t off, int64_t val, int64_t *old, int pe);
/* issue only: adds *v to a word, without a result, done remotely after be_flush; and with the old value, there after be_waitget.
 * The caller leaves *v as it is until then. */
int be_nbadd(size_t off, const int64_t *v, int pe);
int be_nbfadd(size_t off, const int64_t *v, int64_t *old, int pe);
int be_lockpair(int pe);                  /* take and drop one remote lock */
/* all ranks make memory with n bytes for each; each writes a word into its own part; then it is freed. -1: the API has none */
int be_window(size_t n);
int be_has_barrier(void);                 /* 1: be_barrier is the API's own and worth timing */
#endif
