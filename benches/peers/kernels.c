/* Small programs beside `longarm perf comb`, `gups` and `sort`, through MPI: the same work, the same lines.
 *
 *   kernels comb|gups|sort [--quick] --peer NAME --transport NAME
 *
 * COMB (Lawry, Wilson, Maccabe, Brightwell 2003) with MPI_Rget and MPI_Rput in place of messages, random updates with
 * MPI_Accumulate, keys exchanged by MPI_Alltoallv. What is computed is checked. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, np, quick;
static const char *peer = "mpi", *transport = "shm";
static volatile uint64_t sink;

static void die(const char *why)
{
    fprintf(stderr, "kernels: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
static void emit(const char *op, size_t bytes, double each, int window, const char *more)
{
    printf("{\"peer\":\"%s\",\"transport\":\"%s\",\"op\":\"%s\",\"bytes\":%zu,\"np\":%d,\"lat_us\":%.5f,"
           "\"lat_min_us\":%.5f,\"mbps\":%.2f,\"rate\":%.1f,\"window\":%d%s}\n",
           peer, transport, op, bytes, np, each * 1e6, each * 1e6, each > 0 ? bytes / each / 1e6 : 0,
           each > 0 ? 1 / each : 0, window, more);
    fflush(stdout);
}

/* ---- COMB ---- */
enum { TOGETHER = 4, LARGEST = 1000000 };
static MPI_Win win;
static char *local;

static void work(uint64_t steps)
{
    uint64_t x = sink | 1;
    for (uint64_t i = 0; i < steps; i++) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
        __asm__ volatile("" : "+r"(x));
    }
    sink = x;
}
static double steps_a_second(void)
{
    double best = 0;
    for (int i = 0; i < 7; i++) {
        double t = MPI_Wtime();
        work(2000000);
        t = 2000000 / (MPI_Wtime() - t);
        if (t > best) best = t;
    }
    return best;
}
static void start(int is_get, int place, int bytes, MPI_Request *r)
{
    char *here = local + (size_t)place * LARGEST;
    MPI_Aint there = (MPI_Aint)place * bytes;
    if (is_get) MPI_Rget(here, bytes, MPI_BYTE, np - 1, there, bytes, MPI_BYTE, win, r);
    else MPI_Rput(here, bytes, MPI_BYTE, np - 1, there, bytes, MPI_BYTE, win, r);
}
static void batch(int is_get, int bytes, uint64_t steps)
{
    MPI_Request r[TOGETHER];
    MPI_Status s[TOGETHER];
    for (int k = 0; k < TOGETHER; k++) start(is_get, k, bytes, &r[k]);
    if (steps) work(steps);
    MPI_Waitall(TOGETHER, r, s);
    MPI_Win_flush(np - 1, win);
}
static double dry(uint64_t steps, long loops)
{
    double t = MPI_Wtime();
    for (long i = 0; i < loops; i++) work(steps);
    return MPI_Wtime() - t;
}
static void tell(const char *method, int is_get, int bytes, double steps_s, double alone, double wet, double dry_s, long done)
{
    char op[40], more[200];
    double left = dry_s / wet;
    snprintf(op, sizeof op, "comb_%s_%s", method, is_get ? "get" : "put");
    snprintf(more, sizeof more, ",\"interval_us\":%.3f,\"comm_us\":%.3f,\"work_us\":%.3f,\"availability\":%.4f",
             steps_s * 1e6, alone * 1e6, steps_s * 1e6, left > 1 ? 1 : left);
    emit(op, bytes, done ? wet / done : 0, TOGETHER, more);
}
static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static void curves(int is_get, int bytes, double speed)
{
    static const uint64_t steps[] = { 30, 300, 3000, 10000, 30000, 100000, 300000, 1000000, 3000000, 10000000 };
    double v[15], whole = quick ? 0.02 : 0.1;
    for (int i = 0; i < 15; i++) {
        v[i] = MPI_Wtime();
        batch(is_get, bytes, 0);
        v[i] = MPI_Wtime() - v[i];
    }
    qsort(v, 15, sizeof v[0], by_size);
    double alone = v[7];
    for (unsigned i = 0; i < 10; i += quick ? 2 : 1) {
        double step_s = steps[i] / speed;
        long loops = (long)(whole / step_s), done = 0;
        if (loops < 1) loops = 1;
        double alone_s = dry(steps[i], loops);
        MPI_Request r[TOGETHER];
        MPI_Status s[TOGETHER];
        for (int k = 0; k < TOGETHER; k++) start(is_get, k, bytes, &r[k]);
        double t = MPI_Wtime();
        for (long l = 0; l < loops; l++) {
            work(steps[i]);
            for (int k = 0; k < TOGETHER; k++) {
                int there = 0;
                MPI_Test(&r[k], &there, MPI_STATUS_IGNORE);
                if (there) { start(is_get, k, bytes, &r[k]); done++; }
            }
        }
        t = MPI_Wtime() - t;
        MPI_Waitall(TOGETHER, r, s);
        MPI_Win_flush(np - 1, win);
        tell("poll", is_get, bytes, step_s, alone, t, alone_s, done);
        loops = (long)(whole / (step_s + alone));
        if (loops < 3) loops = 3;
        alone_s = dry(steps[i], loops);
        t = MPI_Wtime();
        for (long l = 0; l < loops; l++) batch(is_get, bytes, steps[i]);
        tell("pww", is_get, bytes, step_s, alone, MPI_Wtime() - t, alone_s, loops * TOGETHER);
    }
}
static void comb(void)
{
    static const int sizes[] = { 5000, 100000, LARGEST };
    char *base;
    MPI_Win_allocate(TOGETHER * LARGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    memset(base, 7, TOGETHER * LARGEST);
    local = calloc(TOGETHER, LARGEST);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0) {
        double speed = steps_a_second();
        for (int s = 0; s < 3; s++) {
            curves(1, sizes[s], speed);
            if (local[sizes[s] - 1] != 7) die("what was got is wrong");
            curves(0, sizes[s], speed);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

/* ---- random updates (HPC Challenge RandomAccess) ---- */
static uint64_t next(uint64_t r) { return (r << 1) ^ ((int64_t)r < 0 ? 7 : 0); }
static void gups(void)
{
    uint64_t words = quick ? 1 << 14 : 1 << 20, updates = quick ? 1 << 12 : 1 << 18, *table, r0 = me * 0x9e3779b9ULL + 1;
    double t, seconds = 0;
    long wrong = 0;
    MPI_Win_allocate((MPI_Aint)(8 * words), 8, MPI_INFO_NULL, MPI_COMM_WORLD, &table, &win);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    for (uint64_t i = 0; i < words; i++) table[i] = me * words + i;
    MPI_Win_sync(win);
    for (int i = 0; i <= 4096; i++) r0 = next(r0);
    static uint64_t value[512];
    for (int round = 0; round < 2; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        t = MPI_Wtime();
        uint64_t r = r0;
        for (uint64_t i = 0; i < updates; i++, r = next(r)) {
            uint64_t place = r % (words * np);
            value[i % 512] = r;
            MPI_Accumulate(&value[i % 512], 1, MPI_UINT64_T, (int)(place / words), (MPI_Aint)(place % words), 1,
                           MPI_UINT64_T, MPI_BXOR, win);
            if (i % 512 == 511) MPI_Win_flush_all(win);
        }
        MPI_Win_flush_all(win);
        MPI_Barrier(MPI_COMM_WORLD);
        if (round == 0) seconds = MPI_Wtime() - t;
    }
    MPI_Win_sync(win);
    for (uint64_t i = 0; i < words; i++) wrong += table[i] != me * words + i;
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (wrong) die("the table is wrong after all updates were made twice");
    if (me == 0) emit("gups", 8, seconds / (updates * np), 1, "");
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

/* ---- integer sort (kernel IS of the NAS parallel benchmarks) ---- */
static uint64_t times(uint64_t a, uint64_t b) { return (uint64_t)((unsigned __int128)a * b % (1ULL << 46)); }
static double number(uint64_t *state) { *state = times(*state, 1220703125ULL); return (double)*state / (1ULL << 46); }
static void sort(const char *name, int keys_log, int bound_log)
{
    size_t total = (size_t)1 << keys_log, from = total * me / np, to = total * (me + 1) / np, n = to - from;
    uint32_t bound = 1u << bound_log, *keys = malloc(4 * n + 4), *sent = malloc(4 * n + 4), *mine = malloc(4 * total);
    uint32_t *ranks = malloc(4 * (size_t)bound);
    int shift = bound_log - 10, *cut = malloc(16 * np), *give = cut, *take = cut + np, *at = cut + 2 * np, *to_at = cut + 3 * np;
    uint64_t state = 314159265, factor = 1220703125;
    for (size_t left = 4 * from; left; left /= 2, factor = times(factor, factor))
        if (left % 2) state = times(state, factor);
    for (size_t i = 0; i < n; i++) {
        double sum = number(&state);
        for (int k = 0; k < 3; k++) sum += number(&state);
        keys[i] = (uint32_t)(bound / 4 * sum);
    }
    int got = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double t = MPI_Wtime();
    for (uint32_t iteration = 1; iteration <= 10; iteration++) {
        static int64_t counts[1024];
        static int owner[1024];
        if (me == 0) { keys[iteration] = iteration; keys[iteration + 10] = bound - iteration; }
        memset(counts, 0, sizeof counts);
        for (size_t i = 0; i < n; i++) counts[keys[i] >> shift]++;
        MPI_Allreduce(MPI_IN_PLACE, counts, 1024, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        int64_t before = 0;
        for (int b = 0; b < 1024; before += counts[b++]) {
            owner[b] = (int)(before * np / (int64_t)total);
            if (owner[b] > np - 1) owner[b] = np - 1;
        }
        memset(cut, 0, 16 * np);
        for (size_t i = 0; i < n; i++) give[owner[keys[i] >> shift]]++;
        MPI_Alltoall(give, 1, MPI_INT, take, 1, MPI_INT, MPI_COMM_WORLD);
        for (int p = 1; p < np; p++) { at[p] = at[p - 1] + give[p - 1]; to_at[p] = to_at[p - 1] + take[p - 1]; }
        got = to_at[np - 1] + take[np - 1];
        for (size_t i = 0; i < n; i++) sent[at[owner[keys[i] >> shift]]++] = keys[i];
        for (int p = 0; p < np; p++) at[p] -= give[p];
        MPI_Alltoallv(sent, give, at, MPI_UINT32_T, mine, take, to_at, MPI_UINT32_T, MPI_COMM_WORLD);
        memset(ranks, 0, 4 * (size_t)bound);
        for (int i = 0; i < got; i++) ranks[mine[i]]++;
        for (uint32_t k = 0, sum = 0, here; k < bound; k++) { here = ranks[k]; ranks[k] = sum; sum += here; }
        sink = ranks[bound - 1];
    }
    MPI_Barrier(MPI_COMM_WORLD);
    t = MPI_Wtime() - t;
    long sums[2] = { got, 0 }, lowest = got ? (long)bound : -1, highest = -1;
    for (int i = 0; i < got; i++) {
        sums[1] += mine[i];
        if (mine[i] < lowest) lowest = mine[i];
        if (mine[i] > highest) highest = mine[i];
    }
    for (size_t i = 0; i < n; i++) sums[1] -= keys[i];
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    long ends[2] = { lowest, highest }, *all = malloc(16 * np), last = -1;
    MPI_Allgather(ends, 2, MPI_LONG, all, 2, MPI_LONG, MPI_COMM_WORLD);
    for (int p = 0; p < np; p++) {
        if (all[2 * p] < 0) continue;
        if (all[2 * p] < last) die("the keys are not in order");
        last = all[2 * p + 1];
    }
    if (sums[0] != (long)total || sums[1]) die("the keys are not all there");
    if (me == 0) emit(name, 4, t / (10.0 * total), 1, "");
    free(keys); free(sent); free(mine); free(ranks); free(cut); free(all);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &np);
    const char *what = argc > 1 ? argv[1] : "";
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) quick = 1;
        else if (!strcmp(argv[i], "--peer") && i + 1 < argc) peer = argv[++i];
        else if (!strcmp(argv[i], "--transport") && i + 1 < argc) transport = argv[++i];
        else die("unknown argument");
    }
    if (!strcmp(what, "comb")) comb();
    else if (!strcmp(what, "gups")) gups();
    else if (!strcmp(what, "sort")) {
        sort("is_S", 16, 11);
        if (!quick) { sort("is_W", 20, 16); sort("is_A", 23, 19); }
    } else die("comb, gups or sort");
    MPI_Finalize();
    return 0;
}
