/* What ends the job. Without an argument: the list of deeds; with one, that deed, done by the last PE or by all. */
#include "check.h"

static int variable;
static long word, lock;
static uint64_t signal_word;
static long sync_array[SHMEM_SYNC_SIZE];

/* Only the last PE does what follows; the others wait for it in a barrier. */
static void by_last(void)
{
    begin();
    if (me != pes - 1) {
        shmem_barrier_all();
    }
}

static void no_such_pe(void) { by_last(); shmem_int_p(&variable, 1, pes); }
static void negative_pe(void) { by_last(); shmem_int_get(&variable, &variable, 1, -1); }
static void outside(void) { int local = 0; by_last(); shmem_int_put(&local, &variable, 1, 0); }
static void constant(void)
{
    static const int fixed[2] = { 3, 4 };
    int found = 0;
    by_last();
    shmem_int_get(&found, &fixed[1], 1, 0);
}
static void of_library(void) { by_last(); shmem_putmem(stdout, &variable, 1, 0); }
static void outside_atomic(void) { long local[2] = { 0, 0 }; by_last(); shmem_long_atomic_inc(&local[1], 0); }
static void past_the_end(void)
{
    static char source[200];
    begin();
    char *block = (char *)shmem_malloc(100);
    if (me == pes - 1) {
        shmem_putmem(block, source, 200, 0);
    }
    shmem_barrier_all();
}
static void freed(void)
{
    begin();
    int *block = (int *)shmem_malloc(100);
    shmem_free(block);
    if (me == pes - 1) {
        shmem_int_p(block, 1, 0);
    }
    shmem_barrier_all();
}
static void freed_twice(void)
{
    begin();
    int *block = (int *)shmem_malloc(100);
    shmem_free(block);
    shmem_free(block);
}
static void before_init(void) { shmem_my_pe(); }
static void after_finalize(void) { begin(); shmem_finalize(); shmem_barrier_all(); }
static void no_such_context(void)
{
    shmem_ctx_t ctx;
    by_last();
    shmem_ctx_create(0, &ctx);
    shmem_ctx_destroy(ctx);
    shmem_ctx_int_p(ctx, &variable, 1, 0);
}
static void invalid_context(void) { by_last(); shmem_ctx_int_p(SHMEM_CTX_INVALID, &variable, 1, 0); }
static void no_such_team(void) { by_last(); shmem_team_sync((shmem_team_t)77); }
static void pe_outside_team(void)
{
    shmem_team_t team;
    shmem_ctx_t ctx;
    begin();
    shmem_team_split_strided(SHMEM_TEAM_WORLD, pes - 1, 1, 1, NULL, 0, &team);
    if (me == pes - 1) {
        shmem_team_create_ctx(team, 0, &ctx);
        shmem_ctx_int_p(ctx, &variable, 1, 1);
    }
    shmem_barrier_all();
}
static void no_such_comparison(void) { by_last(); shmem_int_wait_until(&variable, 77, 0); }
static void no_such_signal(void) { by_last(); shmem_int_put_signal(&variable, &variable, 1, &signal_word, 1, 9, 0); }
static void set_outside(void) { by_last(); shmem_barrier(0, 0, 9, sync_array); }
static void lock_not_set(void) { by_last(); shmem_clear_lock(&lock); }
static void other_calls(void)
{
    begin();
    void *block = shmem_malloc(100);
    if (me == 0) {
        shmem_malloc(100);
    } else {
        shmem_free(block);
    }
}
static void global_exit_7(void) { by_last(); shmem_global_exit(7); }
static void global_exit_0(void) { by_last(); shmem_global_exit(0); }
static void exit_5(void) { by_last(); exit(5); }

static const struct {
    const char *name;
    void (*deed)(void);
} deeds[] = {
#define DEED(name) { #name, name },
    DEED(no_such_pe) DEED(negative_pe) DEED(outside) DEED(constant) DEED(of_library)
    DEED(outside_atomic) DEED(past_the_end) DEED(freed)
    DEED(freed_twice) DEED(before_init) DEED(after_finalize) DEED(no_such_context) DEED(invalid_context)
    DEED(no_such_team) DEED(pe_outside_team) DEED(no_such_comparison) DEED(no_such_signal) DEED(set_outside)
    DEED(lock_not_set) DEED(other_calls) DEED(global_exit_7) DEED(global_exit_0) DEED(exit_5)
};

int main(int argc, char **argv)
{
    for (size_t at = 0; at < sizeof deeds / sizeof *deeds; at++) {
        if (argc < 2) {
            printf("%s\n", deeds[at].name);
        } else if (strcmp(argv[1], deeds[at].name) == 0) {
            deeds[at].deed();
            printf("goes on\n");
            fflush(stdout);
        }
    }
    (void)word;
    (void)next_pe;
    (void)previous_pe;
    (void)end;
    return 0;
}
