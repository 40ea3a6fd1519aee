/* Collectives and a word that all want, through MPI or, with -DOPENSHMEM, through shmem.h; the same as
 * `longarm-bench rank peer-collectives`, which does not shorten what is slow.
 *
 *   collectives [--quick] --peer NAME --transport LAYOUT
 *
 * Every rank takes part equally often; rank 0's time counts. The word is the last rank's. At most four ranks move 64 KiB and 1 MiB too.
 * What comes is checked. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int me, np, quick;
static const char *peer = "mpi", *layout = "";
static char *source, *target;
static size_t buffer_bytes;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
/* Whose word all want: on the last host, so that rank 0, which finds out how often it can be had, is on another. */
static int owner(void) { return np - 1; }
static void die(const char *why)
{
    fprintf(stderr, "collectives: rank %d: %s\n", me, why);
    exit(1);
}

#ifdef OPENSHMEM
#include <shmem.h>
static long *word;
static void start(void)
{
    shmem_init();
    me = shmem_my_pe();
    np = shmem_n_pes();
}
/* Open MPI 4 has no teams: these are the forms of OpenSHMEM 1.4. Calls that follow each other use their own words: nobody is a whole turn
   of broadcasts ahead, which has as many calls as there are PEs. */
enum { SETS = 64 };
static long syncs[SETS][SHMEM_COLLECT_SYNC_SIZE + SHMEM_BCAST_SYNC_SIZE + SHMEM_REDUCE_SYNC_SIZE + SHMEM_ALLTOALL_SYNC_SIZE];
static double *works[SETS];
static unsigned calls;
static void allocate(void)
{
    source = shmem_malloc(buffer_bytes);
    target = shmem_malloc(buffer_bytes);
    word = shmem_calloc(1, sizeof *word);
    if (!source || !target || !word) die("the heap is too small");
    const size_t least = SHMEM_REDUCE_MIN_WRKDATA_SIZE * sizeof(double), part = buffer_bytes / np / 2 + sizeof(double);
    for (int set = 0; set < SETS; set++) {
        works[set] = shmem_malloc(part > least ? part : least);
        if (!works[set]) die("the heap is too small");
        for (size_t i = 0; i < sizeof syncs[set] / sizeof syncs[set][0]; i++) syncs[set][i] = SHMEM_SYNC_VALUE;
    }
    shmem_barrier_all();
}
static void end(void) { shmem_finalize(); }
static void barrier(size_t bytes) { (void)bytes; shmem_barrier_all(); }
static long *sync_of_next(void) { return syncs[++calls % SETS]; }
static void broadcast_from(int root, size_t bytes) { shmem_broadcast64(target, source, bytes / 8, root, 0, 0, np, sync_of_next()); }
static void allreduce(size_t bytes)
{
    long *sync = sync_of_next();
    shmem_double_sum_to_all((double *)target, (double *)target, (int)(bytes / 8), 0, 0, np, works[calls % SETS], sync);
}
static void allgather(size_t bytes) { shmem_fcollect64(target, source, bytes / 8, 0, 0, np, sync_of_next()); }
static void alltoall(size_t bytes) { shmem_alltoall64(target, source, bytes / 8, 0, 0, np, sync_of_next()); }
static void add(void) { (void)shmem_long_atomic_fetch_add(word, 1, owner()); }
static uint64_t counted(void) { return (uint64_t)shmem_long_atomic_fetch(word, owner()); }
#else
#include <mpi.h>
static MPI_Win win;
static uint64_t *words;
static void start(void)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &np);
}
static void allocate(void)
{
    source = malloc(buffer_bytes);
    target = malloc(buffer_bytes);
    if (!source || !target) die("no memory");
    MPI_Win_allocate(sizeof *words, sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &words, &win);
    *words = 0;
    MPI_Win_lock_all(0, win);
}
static void end(void)
{
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    MPI_Finalize();
}
static void barrier(size_t bytes) { (void)bytes; MPI_Barrier(MPI_COMM_WORLD); }
static void broadcast_from(int root, size_t bytes)
{
    MPI_Bcast(me == root ? source : target, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
}
static void allreduce(size_t bytes)
{
    MPI_Allreduce(MPI_IN_PLACE, target, (int)(bytes / sizeof(double)), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
static void allgather(size_t bytes)
{
    MPI_Allgather(source, (int)bytes, MPI_BYTE, target, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}
static void alltoall(size_t bytes)
{
    MPI_Alltoall(source, (int)bytes, MPI_BYTE, target, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}
static void add(void)
{
    uint64_t one = 1, old;
    MPI_Fetch_and_op(&one, &old, MPI_UINT64_T, owner(), 0, MPI_SUM, win);
    MPI_Win_flush(owner(), win);
}
static uint64_t counted(void)
{
    uint64_t none = 0, old;
    MPI_Fetch_and_op(&none, &old, MPI_UINT64_T, owner(), 0, MPI_NO_OP, win);
    MPI_Win_flush(owner(), win);
    return old;
}
#endif

/* A program sends something new each time: it changes every line of the caches first. That counts. Else who reads another's memory would find it
   in its own cache from the second time on. */
static void renew(size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) source[i]++;
}
static void new_allgather(size_t bytes)
{
    renew(bytes);
    allgather(bytes);
}
static void new_alltoall(size_t bytes)
{
    renew(bytes * np);
    alltoall(bytes);
}
/* From each in turn, so that nobody can run ahead of the others for long. */
static void broadcast(size_t bytes)
{
    static int next;
    broadcast_from(next++ % np, bytes);
}
static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static void tell(const char *op, size_t bytes, double *each, int batches)
{
    if (me) return;
    qsort(each, batches, sizeof *each, compare);
    printf("{\"peer\":\"%s\",\"transport\":\"%s\",\"op\":\"%s\",\"bytes\":%zu,\"np\":%d,\"lat_us\":%.5f,\"lat_min_us\":%.5f}\n",
           peer, layout, op, bytes, np, each[batches / 2] * 1e6, each[0] * 1e6);
    fflush(stdout);
}

enum { BATCHES_MAX = 25 };
static int batches_of(void) { return quick ? 9 : BATCHES_MAX; }

/* A number of rank 0's, at all. */
static size_t told_by_first(size_t number)
{
    memcpy(source, &number, sizeof number);
    broadcast_from(0, sizeof number);
    memcpy(&number, me ? target : source, sizeof number);
    barrier(0);
    return number;
}
/* How often, which rank 0 decides: for a fifth of a second at most. */
static size_t rounds_of(size_t bytes, void (*once)(size_t))
{
    size_t rounds = ((size_t)64 << 20) / ((bytes ? bytes : 8) * np);
    rounds = rounds < 4 ? 4 : rounds > 400 ? 400 : rounds;
    if (quick) rounds = (rounds + 7) / 8;
    once(bytes);
    barrier(0);
    double t = now();
    once(bytes);
    barrier(0);
    size_t most = 0.2 / (now() - t);
    if (rounds > most) rounds = most < 2 ? 2 : most;
    return told_by_first(rounds);
}
static void measure(const char *op, size_t bytes, void (*once)(size_t))
{
    const size_t rounds = rounds_of(bytes, once);
    double each[BATCHES_MAX];
    memset(target, 0, bytes);
    for (int b = 0; b < batches_of(); b++) {
        barrier(0);
        double t = now();
        for (size_t i = 0; i < rounds; i++) once(bytes);
        each[b] = (now() - t) / rounds;
    }
    tell(op, bytes, each, batches_of());
}

/* All add to one word of the last rank; the time is divided by all additions. */
static void contended(void)
{
    double each[BATCHES_MAX];
    /* As often as fits into a batch for rank 0 alone, as longarm-bench does it. */
    double t = now();
    for (int i = 0; i < 200 && !me; i++) add();
    t = (quick ? 0.01 : 0.04) / ((now() - t) / 200);
    const size_t count = told_by_first(t < 200 ? 200 : t > 1e6 ? 1000000 : (size_t)t);
    uint64_t before = counted();
    for (int b = 0; b < batches_of(); b++) {
        barrier(0);
        t = now();
        for (size_t i = 0; i < count; i++) add();
        barrier(0);
        each[b] = (now() - t) / count / np;
        uint64_t all = (uint64_t)count * np;
        if (counted() != before + all) die("additions of several ranks at once were lost");
        before += all;
        barrier(0);
    }
    tell("fadd_contended", 8, each, batches_of());
}

static void check(size_t bytes)
{
    /* Each byte says who sends it and, of an all-to-all, to whom. */
    for (int to = 0; to < np; to++) memset(source + to * bytes, (me * 89 + to * 151) & 255, bytes);
    memset(target, 1, bytes * np);
    barrier(0);
    alltoall(bytes);
    for (int from = 0; from < np; from++)
        for (size_t i = 0; i < bytes; i++)
            if ((unsigned char)target[from * bytes + i] != ((from * 89 + me * 151) & 255)) die("all-to-all has not brought what was sent");
    barrier(0);
    memset(source, me * 7 + 1, bytes);
    allgather(bytes);
    for (int from = 0; from < np; from++)
        for (size_t i = 0; i < bytes; i++)
            if ((unsigned char)target[from * bytes + i] != ((from * 7 + 1) & 255)) die("allgather has not brought what all have");
    barrier(0);
    for (int root = 0; root < np; root++) {
        memset(source, root * 5 + 3, bytes);
        broadcast_from(root, bytes);
        for (size_t i = 0; i < bytes; i++)
            if (me != root && (unsigned char)target[i] != ((root * 5 + 3) & 255)) die("broadcast has not brought what the root has");
        barrier(0);
    }
    for (size_t i = 0; i < bytes / sizeof(double); i++) ((double *)target)[i] = me + 1;
    barrier(0);
    allreduce(bytes);
    for (size_t i = 0; i < bytes / sizeof(double); i++)
        if (((double *)target)[i] != np * (np + 1) / 2) die("allreduce has a wrong sum");
    barrier(0);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) quick = 1;
        else if (!strcmp(argv[i], "--peer") && i + 1 < argc) peer = argv[++i];
        else if (!strcmp(argv[i], "--transport") && i + 1 < argc) layout = argv[++i];
        else die("usage: collectives [--quick] --peer NAME --transport LAYOUT");
    }
    start();
    const size_t sizes[] = {64 << 10, 1 << 20};
    const int large = np <= 4;
    const size_t most = large ? sizes[1] : 8;
    buffer_bytes = most * np;
    allocate();
    memset(source, 0, buffer_bytes);
    check(8);
    measure("barrier", 0, barrier);
    measure("broadcast", 8, broadcast);
    measure("allreduce", 8, allreduce);
    for (int i = 0; large && i < 2; i++) {
        check(sizes[i]);
        measure("allreduce", sizes[i], allreduce);
        measure("allgather", sizes[i], new_allgather);
        measure("alltoall", sizes[i], new_alltoall);
    }
    contended();
    end();
    return 0;
}
