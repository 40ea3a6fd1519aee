/* What is allowed, and easily forgotten: nothing to move, invalid handles, volatile words, sizes that differ, and headers
   that a program of C++ includes as C. */
#ifdef __cplusplus
extern "C" {
#endif
#include <shmem.h>
#include <shmemx.h>
#include <pshmem.h>
#ifdef __cplusplus
}
#endif

#include "check.h"

static long sync_array[SHMEM_SYNC_SIZE], volatile_long_stored;
static int work[SHMEM_REDUCE_MIN_WRKDATA_SIZE], variable;
/* Handles are constants. */
static const shmem_ctx_t default_context = SHMEM_CTX_DEFAULT;
static shmem_team_t teams[] = { SHMEM_TEAM_WORLD, SHMEM_TEAM_SHARED, SHMEM_TEAM_INVALID };

/* A pointer may be NULL where nothing is moved. */
static void nothing(void)
{
    static uint64_t signal;
    const shmem_team_t all = teams[0];
    for (int i = 0; i < SHMEM_SYNC_SIZE; i++) {
        sync_array[i] = SHMEM_SYNC_VALUE;
    }
    shmem_barrier_all();
    shmem_broadcast32(NULL, NULL, 0, 0, 0, 0, pes, sync_array);
    shmem_collect64(NULL, NULL, 0, 0, 0, pes, sync_array);
    shmem_fcollect32(NULL, NULL, 0, 0, 0, pes, sync_array);
    shmem_alltoall64(NULL, NULL, 0, 0, 0, pes, sync_array);
    shmem_alltoalls32(NULL, NULL, 1, 1, 0, 0, 0, pes, sync_array);
    shmem_int_sum_to_all(NULL, NULL, 0, 0, 0, pes, work, sync_array);
    CHECK_EQUAL(shmem_int_broadcast(all, NULL, NULL, 0, 0), 0);
    CHECK_EQUAL(shmem_int_collect(all, NULL, NULL, 0), 0);
    CHECK_EQUAL(shmem_fcollectmem(all, NULL, NULL, 0), 0);
    CHECK_EQUAL(shmem_int_alltoall(all, NULL, NULL, 0), 0);
    CHECK_EQUAL(shmem_alltoallsmem(all, NULL, NULL, 1, 1, 0), 0);
    CHECK_EQUAL(shmem_double_prod_reduce(all, NULL, NULL, 0), 0);
    CHECK_EQUAL(shmem_int_sum_inscan(all, NULL, NULL, 0), 0);
    CHECK_EQUAL(shmem_int_sum_exscan(all, NULL, NULL, 0), 0);
    shmem_int_put(NULL, NULL, 0, next_pe());
    shmem_getmem(NULL, NULL, 0, next_pe());
    shmem_putmem_nbi(NULL, NULL, 0, next_pe());
    shmem_getmem_nbi(NULL, NULL, 0, next_pe());
    shmem_int_iput(NULL, NULL, 1, 1, 0, next_pe());
    shmem_int_ibget(NULL, NULL, 1, 1, 4, 0, next_pe());
    shmem_int_put_signal(NULL, NULL, 0, &signal, 3, SHMEM_SIGNAL_SET, next_pe());
    CHECK_EQUAL(shmem_signal_wait_until(&signal, SHMEM_CMP_EQ, 3), 3);
    shmem_pe_quiet(NULL, 0);
    shmem_int_wait_until_all(NULL, 0, NULL, SHMEM_CMP_EQ, 0);
    CHECK(shmem_int_wait_until_any(NULL, 0, NULL, SHMEM_CMP_EQ, 0) == SIZE_MAX);
    CHECK_EQUAL(shmem_realloc(NULL, 0) == NULL, 1);
}

/* Calls on what is invalid do nothing, or say so. */
static void invalid(void)
{
    const int pe = 0;
    shmem_ctx_t ctx = SHMEM_CTX_INVALID;
    shmem_team_t team = teams[0], other = teams[0];
    shmem_ctx_session_config_t session = { 100 };
    shmem_ctx_quiet(ctx);
    shmem_ctx_fence(ctx);
    shmem_ctx_pe_quiet(ctx, &pe, 1);
    shmem_ctx_session_start(ctx, SHMEM_CTX_SESSION_BATCH, &session, SHMEM_CTX_SESSION_TOTAL_OPS);
    shmem_ctx_session_stop(ctx);
    shmem_ctx_destroy(ctx);
    CHECK(shmem_ctx_get_team(ctx, &team) != 0 && team == SHMEM_TEAM_INVALID);
    CHECK(shmem_ctx_get_team(default_context, &team) == 0 && team == SHMEM_TEAM_WORLD);
    ctx = default_context;
    CHECK(shmem_team_create_ctx(teams[2], 0, &ctx) != 0 && ctx == SHMEM_CTX_INVALID);
    shmem_team_destroy(teams[2]);
    CHECK(shmem_team_sync(teams[2]) != 0 && shmem_int_sum_reduce(teams[2], work, work, 1) != 0);
    CHECK(shmem_team_my_pe(teams[2]) == -1 && shmem_team_n_pes(teams[2]) == -1);
    CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, pes, SHMEM_TEAM_WORLD) == -1);
    CHECK(shmem_team_translate_pe(teams[2], 0, SHMEM_TEAM_WORLD) == -1);
    CHECK(shmem_team_ptr(teams[2], &variable, 0) == NULL);
    CHECK(shmem_team_split_strided(teams[2], 0, 1, 1, NULL, 0, &team) != 0 && team == SHMEM_TEAM_INVALID);
    CHECK(shmem_team_split_2d(teams[2], 1, NULL, 0, &team, NULL, 0, &other) != 0 && other == SHMEM_TEAM_INVALID);
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes + 1, NULL, 0, &team) != 0);
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, -1, 2, NULL, 0, &team) != 0);
    CHECK(team == SHMEM_TEAM_INVALID);
    /* A session changes nothing. */
    shmem_ctx_session_start(default_context, SHMEM_CTX_SESSION_BATCH, &session, SHMEM_CTX_SESSION_TOTAL_OPS);
    shmem_ctx_int_p(default_context, &variable, me, next_pe());
    shmem_ctx_session_stop(default_context);
    shmem_barrier_all();
    CHECK_EQUAL(variable, previous_pe());
}

/* Version 1.3 had these arguments volatile. */
static void volatile_words(void)
{
    static volatile int flag;
    static volatile long lock;
    static volatile short half;
    volatile long *stored = &volatile_long_stored;
    shmem_int_p((int *)&flag, 5, next_pe());
    shmem_int_wait_until(&flag, SHMEM_CMP_EQ, 5);
    CHECK(shmem_int_test(&flag, SHMEM_CMP_GE, 5));
    shmem_long_p((long *)stored, 6, next_pe());
    shmem_long_wait(stored, 0);
    shmem_wait_until(stored, SHMEM_CMP_EQ, 6);
    shmem_short_p((short *)&half, 7, next_pe());
    shmem_short_wait_until(&half, SHMEM_CMP_EQ, 7);
    shmem_set_lock(&lock);
    shmem_clear_lock(&lock);
}

/* Types that waiting had before version 1.5, also for several words. */
static void halves(void)
{
    static short words[2];
    static unsigned short wholes[2];
    static unsigned int whole;
    size_t places[2];
    short values[2] = { 3, 4 };
    int statuses[2] = { 0, 0 };
    shmem_barrier_all();
    shmem_short_p(&words[0], 3, next_pe());
    shmem_short_p(&words[1], 4, next_pe());
    shmem_ushort_p(&wholes[1], 5, next_pe());
    shmem_uint_p(&whole, 6, next_pe());
    shmem_short_wait_until_all(words, 2, NULL, SHMEM_CMP_GT, 2);
    CHECK_EQUAL(shmem_short_wait_until_any(words, 2, statuses, SHMEM_CMP_EQ, 4), 1);
    shmem_short_wait_until_all_vector(words, 2, statuses, SHMEM_CMP_EQ, values);
    CHECK_EQUAL(shmem_short_test_some_vector(words, 2, places, NULL, SHMEM_CMP_EQ, values), 2);
    CHECK_EQUAL(shmem_ushort_wait_until_some(wholes, 2, places, NULL, SHMEM_CMP_EQ, 5), 1);
    CHECK_EQUAL(places[0], 1);
    CHECK_EQUAL(shmem_ushort_test_all(wholes, 2, NULL, SHMEM_CMP_EQ, 5), 0);
    shmem_uint_wait(&whole, 0);
#if !defined(__STDC_VERSION__) || __STDC_VERSION__ >= 201112L
    CHECK_EQUAL(shmem_test_any(wholes, 2, NULL, SHMEM_CMP_EQ, (unsigned short)5), 1);
    CHECK_EQUAL(shmem_test_all_vector(words, 2, NULL, SHMEM_CMP_EQ, values), 1);
#endif
    shmem_barrier_all();
}

/* Every PE has as much as the one that asks for most. */
static void sizes(void)
{
    const size_t count = (size_t)me + 1;
    int *block = (int *)shmem_malloc(count * sizeof(int)), values[PES_MAX];
    for (int i = 0; i <= me; i++) {
        block[i] = -1;
    }
    for (int i = 0; i < pes; i++) {
        values[i] = me;
    }
    shmem_barrier_all();
    shmem_int_put(block, values, (size_t)next_pe() + 1, next_pe());
    shmem_barrier_all();
    for (int i = 0; i <= me; i++) {
        CHECK_EQUAL(block[i], previous_pe());
    }
    block = (int *)shmem_realloc(block, count * 4000);
    CHECK(block != NULL && block[me] == previous_pe());
    block[count * 1000 - 1] = me;
    char *zeroes = (char *)shmem_calloc(count, 3);
    CHECK(zeroes != NULL && zeroes[count * 3 - 1] == 0);
    shmem_getmem(values, zeroes, 3, next_pe());
    shmem_free(block);
    shmem_free(zeroes);
    /* Any power of two is an alignment. */
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        void *aligned = shmem_align(alignment, 5);
        CHECK(aligned != NULL && (uintptr_t)aligned % alignment == 0);
        shmem_free(aligned);
    }
}

int main(void)
{
    begin();
    nothing();
    invalid();
    volatile_words();
    halves();
    sizes();
    end("edges");
    return 0;
}
