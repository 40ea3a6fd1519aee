/* The generic names of C11, which are overloads in C++: every name, every type that is apart. */
#include "check.h"

enum { COUNT = 8 };

#define RMA(T, C)                                                                                                      \
    static C dest_##T[PES_MAX * COUNT], source_##T[PES_MAX * COUNT];                                                   \
    static void rma_##T(shmem_ctx_t ctx)                                                                               \
    {                                                                                                                  \
        static uint64_t signal;                                                                                        \
        C back[COUNT];                                                                                                 \
        const C *constant = source_##T;                                                                                \
        for (int i = 0; i < PES_MAX * COUNT; i++) {                                                                    \
            source_##T[i] = (C)(me + i % 50);                                                                          \
        }                                                                                                              \
        signal = 0;                                                                                                    \
        shmem_barrier_all();                                                                                           \
        shmem_put(dest_##T, constant, COUNT, next_pe());                                                               \
        shmem_put(ctx, dest_##T, source_##T, COUNT, next_pe());                                                        \
        shmem_iput(dest_##T, source_##T, 1, 1, COUNT, next_pe());                                                      \
        shmem_iput(ctx, dest_##T, source_##T, 1, 1, COUNT, next_pe());                                                 \
        shmem_ibput(dest_##T, source_##T, 2, 2, 2, 4, next_pe());                                                      \
        shmem_ibput(ctx, dest_##T, source_##T, 2, 2, 2, 4, next_pe());                                                 \
        shmem_put_nbi(dest_##T, source_##T, COUNT, next_pe());                                                         \
        shmem_put_nbi(ctx, dest_##T, source_##T, COUNT, next_pe());                                                    \
        shmem_p(&dest_##T[0], source_##T[0], next_pe());                                                               \
        shmem_p(ctx, &dest_##T[1], source_##T[1], next_pe());                                                          \
        shmem_put_signal(dest_##T, source_##T, COUNT, &signal, 1, SHMEM_SIGNAL_ADD, next_pe());                        \
        shmem_put_signal(ctx, dest_##T, source_##T, COUNT, &signal, 1, SHMEM_SIGNAL_ADD, next_pe());                   \
        shmem_put_signal_nbi(dest_##T, source_##T, COUNT, &signal, 1, SHMEM_SIGNAL_ADD, next_pe());                    \
        shmem_put_signal_nbi(ctx, dest_##T, source_##T, COUNT, &signal, 1, SHMEM_SIGNAL_ADD, next_pe());               \
        shmem_ctx_quiet(ctx);                                                                                          \
        shmem_barrier_all();                                                                                           \
        CHECK_EQUAL(signal, 4);                                                                                        \
        for (int i = 0; i < COUNT; i++) {                                                                              \
            CHECK(dest_##T[i] == (C)(previous_pe() + i));                                                              \
        }                                                                                                              \
        shmem_get(back, constant, COUNT, next_pe());                                                                   \
        shmem_get(ctx, back, source_##T, COUNT, next_pe());                                                            \
        shmem_iget(back, source_##T, 1, 1, COUNT, next_pe());                                                          \
        shmem_iget(ctx, back, source_##T, 1, 1, COUNT, next_pe());                                                     \
        shmem_ibget(back, source_##T, 2, 2, 2, 4, next_pe());                                                          \
        shmem_ibget(ctx, back, source_##T, 2, 2, 2, 4, next_pe());                                                     \
        shmem_get_nbi(back, source_##T, COUNT, next_pe());                                                             \
        shmem_get_nbi(ctx, back, source_##T, COUNT, next_pe());                                                        \
        shmem_quiet();                                                                                                 \
        shmem_ctx_quiet(ctx);                                                                                          \
        CHECK(back[7] == (C)(next_pe() + 7));                                                                          \
        CHECK(shmem_g(&constant[3], next_pe()) == (C)(next_pe() + 3));                                                 \
        CHECK(shmem_g(ctx, &source_##T[4], next_pe()) == (C)(next_pe() + 4));                                          \
        shmem_barrier_all();                                                                                           \
    }                                                                                                                  \
    static void moves_##T(void)                                                                                        \
    {                                                                                                                  \
        shmem_barrier_all();                                                                                           \
        CHECK_EQUAL(shmem_broadcast(SHMEM_TEAM_WORLD, dest_##T, source_##T, COUNT, 0), 0);                             \
        CHECK(dest_##T[1] == (C)1);                                                                                    \
        CHECK_EQUAL(shmem_fcollect(SHMEM_TEAM_WORLD, dest_##T, source_##T, COUNT), 0);                                 \
        CHECK(dest_##T[(pes - 1) * COUNT] == (C)(pes - 1));                                                            \
        CHECK_EQUAL(shmem_collect(SHMEM_TEAM_WORLD, dest_##T, source_##T, 1), 0);                                      \
        CHECK(dest_##T[pes - 1] == (C)(pes - 1));                                                                      \
        CHECK_EQUAL(shmem_alltoall(SHMEM_TEAM_WORLD, dest_##T, source_##T, 1), 0);                                     \
        CHECK(dest_##T[pes - 1] == (C)(pes - 1 + me));                                                                 \
        CHECK_EQUAL(shmem_alltoalls(SHMEM_TEAM_WORLD, dest_##T, source_##T, 2, 1, 1), 0);                              \
        CHECK(dest_##T[2 * (pes - 1)] == (C)(pes - 1 + me));                                                           \
        CHECK_EQUAL(shmem_max_reduce(SHMEM_TEAM_WORLD, dest_##T, source_##T, 2), 0);                                   \
        CHECK(dest_##T[1] == (C)pes);                                                                                  \
        CHECK_EQUAL(shmem_min_reduce(SHMEM_TEAM_WORLD, dest_##T, source_##T, 2), 0);                                   \
        CHECK(dest_##T[1] == (C)1);                                                                                    \
        CHECK_EQUAL(shmem_sum_reduce(SHMEM_TEAM_WORLD, dest_##T, source_##T, 1), 0);                                   \
        CHECK(dest_##T[0] == (C)(pes * (pes - 1) / 2));                                                                \
        CHECK_EQUAL(shmem_prod_reduce(SHMEM_TEAM_WORLD, dest_##T, source_##T, 1), 0);                                  \
        CHECK(dest_##T[0] == (C)0);                                                                                    \
        CHECK_EQUAL(shmem_sum_inscan(SHMEM_TEAM_WORLD, dest_##T, source_##T, 1), 0);                                   \
        CHECK(dest_##T[0] == (C)(me * (me + 1) / 2));                                                                  \
        CHECK_EQUAL(shmem_sum_exscan(SHMEM_TEAM_WORLD, dest_##T, source_##T, 1), 0);                                   \
        CHECK(dest_##T[0] == (C)(me * (me - 1) / 2));                                                                  \
    }
OWN_TYPES(RMA)

#define AMO(T, C)                                                                                                      \
    static C word_##T, words_##T[2];                                                                                   \
    static void amo_##T(shmem_ctx_t ctx)                                                                               \
    {                                                                                                                  \
        C fetched, ones[2] = { 1, 1 };                                                                                 \
        size_t places[2];                                                                                              \
        word_##T = 0;                                                                                                  \
        words_##T[0] = words_##T[1] = 1;                                                                               \
        shmem_barrier_all();                                                                                           \
        shmem_atomic_inc(&word_##T, 0);                                                                                \
        shmem_atomic_inc(ctx, &word_##T, 0);                                                                           \
        shmem_atomic_add(&word_##T, (C)1, 0);                                                                          \
        shmem_atomic_add(ctx, &word_##T, (C)1, 0);                                                                     \
        CHECK(shmem_atomic_fetch_inc(&word_##T, 0) >= 4);                                                              \
        CHECK(shmem_atomic_fetch_inc(ctx, &word_##T, 0) >= 4);                                                         \
        CHECK(shmem_atomic_fetch_add(&word_##T, (C)1, 0) >= 4);                                                        \
        CHECK(shmem_atomic_fetch_add(ctx, &word_##T, (C)1, 0) >= 4);                                                   \
        shmem_atomic_fetch_inc_nbi(&fetched, &word_##T, 0);                                                            \
        shmem_atomic_fetch_inc_nbi(ctx, &fetched, &word_##T, 0);                                                       \
        shmem_atomic_fetch_add_nbi(&fetched, &word_##T, (C)1, 0);                                                      \
        shmem_atomic_fetch_add_nbi(ctx, &fetched, &word_##T, (C)1, 0);                                                 \
        shmem_ctx_quiet(ctx);                                                                                          \
        shmem_barrier_all();                                                                                           \
        CHECK_EQUAL(shmem_atomic_fetch(&word_##T, 0), 12 * pes);                                                       \
        CHECK_EQUAL(shmem_atomic_fetch(ctx, &word_##T, 0), 12 * pes);                                                  \
        shmem_barrier_all();                                                                                           \
        shmem_atomic_set(&word_##T, (C)3, next_pe());                                                                  \
        shmem_atomic_set(ctx, &word_##T, (C)4, next_pe());                                                             \
        CHECK_EQUAL(shmem_atomic_swap(&word_##T, (C)5, next_pe()), 4);                                                 \
        CHECK_EQUAL(shmem_atomic_swap(ctx, &word_##T, (C)6, next_pe()), 5);                                            \
        CHECK_EQUAL(shmem_atomic_compare_swap(&word_##T, (C)6, (C)7, next_pe()), 6);                                   \
        CHECK_EQUAL(shmem_atomic_compare_swap(ctx, &word_##T, (C)7, (C)8, next_pe()), 7);                              \
        shmem_atomic_fetch_nbi(&fetched, &word_##T, next_pe());                                                        \
        shmem_quiet();                                                                                                 \
        CHECK_EQUAL(fetched, 8);                                                                                       \
        shmem_atomic_swap_nbi(ctx, &fetched, &word_##T, (C)9, next_pe());                                              \
        shmem_ctx_quiet(ctx);                                                                                          \
        CHECK_EQUAL(fetched, 8);                                                                                       \
        shmem_atomic_compare_swap_nbi(&fetched, &word_##T, (C)9, (C)10, next_pe());                                    \
        shmem_quiet();                                                                                                 \
        CHECK_EQUAL(fetched, 9);                                                                                       \
        shmem_wait_until(&word_##T, SHMEM_CMP_EQ, (C)10);                                                              \
        CHECK(shmem_test(&word_##T, SHMEM_CMP_EQ, (C)10));                                                             \
        shmem_wait_until_all(words_##T, 2, NULL, SHMEM_CMP_EQ, (C)1);                                                  \
        CHECK(shmem_wait_until_any(words_##T, 2, NULL, SHMEM_CMP_EQ, (C)1) < 2);                                       \
        CHECK_EQUAL(shmem_wait_until_some(words_##T, 2, places, NULL, SHMEM_CMP_EQ, (C)1), 2);                         \
        shmem_wait_until_all_vector(words_##T, 2, NULL, SHMEM_CMP_EQ, ones);                                           \
        CHECK(shmem_wait_until_any_vector(words_##T, 2, NULL, SHMEM_CMP_EQ, ones) < 2);                                \
        CHECK_EQUAL(shmem_wait_until_some_vector(words_##T, 2, places, NULL, SHMEM_CMP_EQ, ones), 2);                  \
        CHECK_EQUAL(shmem_test_all(words_##T, 2, NULL, SHMEM_CMP_EQ, (C)1), 1);                                        \
        CHECK(shmem_test_any(words_##T, 2, NULL, SHMEM_CMP_EQ, (C)1) < 2);                                             \
        CHECK_EQUAL(shmem_test_some(words_##T, 2, places, NULL, SHMEM_CMP_EQ, (C)1), 2);                               \
        CHECK_EQUAL(shmem_test_all_vector(words_##T, 2, NULL, SHMEM_CMP_EQ, ones), 1);                                 \
        CHECK(shmem_test_any_vector(words_##T, 2, NULL, SHMEM_CMP_EQ, ones) < 2);                                      \
        CHECK_EQUAL(shmem_test_some_vector(words_##T, 2, places, NULL, SHMEM_CMP_EQ, ones), 2);                        \
        shmem_barrier_all();                                                                                           \
    }
OWN_AMO_TYPES(AMO)

#define BITS(T, C)                                                                                                     \
    static void bits_##T(shmem_ctx_t ctx)                                                                              \
    {                                                                                                                  \
        C fetched;                                                                                                     \
        word_##T = (C)6;                                                                                               \
        shmem_barrier_all();                                                                                           \
        shmem_atomic_or(&word_##T, (C)1, next_pe());                                                                   \
        shmem_atomic_and(ctx, &word_##T, (C)3, next_pe());                                                             \
        shmem_atomic_xor(&word_##T, (C)1, next_pe());                                                                  \
        CHECK_EQUAL(shmem_atomic_fetch_or(ctx, &word_##T, (C)4, next_pe()), 2);                                        \
        CHECK_EQUAL(shmem_atomic_fetch_and(&word_##T, (C)4, next_pe()), 6);                                            \
        CHECK_EQUAL(shmem_atomic_fetch_xor(ctx, &word_##T, (C)1, next_pe()), 4);                                       \
        shmem_atomic_fetch_or_nbi(&fetched, &word_##T, (C)8, next_pe());                                               \
        shmem_quiet();                                                                                                 \
        shmem_atomic_fetch_and_nbi(ctx, &fetched, &word_##T, (C)8, next_pe());                                         \
        shmem_ctx_quiet(ctx);                                                                                          \
        shmem_atomic_fetch_xor_nbi(&fetched, &word_##T, (C)8, next_pe());                                              \
        shmem_barrier_all();                                                                                           \
        CHECK_EQUAL(fetched, 8);                                                                                       \
        CHECK_EQUAL(word_##T, 0);                                                                                      \
        source_##T[0] = (C)(1 << me);                                                                                  \
        shmem_barrier_all();                                                                                           \
        CHECK_EQUAL(shmem_or_reduce(SHMEM_TEAM_WORLD, dest_##T, source_##T, 1), 0);                                    \
        CHECK_EQUAL(dest_##T[0], (1 << pes) - 1);                                                                      \
        CHECK_EQUAL(shmem_xor_reduce(SHMEM_TEAM_WORLD, dest_##T, source_##T, 1), 0);                                   \
        CHECK_EQUAL(dest_##T[0], (1 << pes) - 1);                                                                      \
        CHECK_EQUAL(shmem_and_reduce(SHMEM_TEAM_WORLD, dest_##T, source_##T, 1), 0);                                   \
        CHECK_EQUAL(dest_##T[0], pes == 1 ? 1 : 0);                                                                    \
    }
BITS(uint, unsigned int)
BITS(ulong, unsigned long)
BITS(ulonglong, unsigned long long)
BITS(int, int)
BITS(long, long)

static void old_names(void)
{
    static long word;
    static short half;
    static double real;
    static unsigned int whole;
    static unsigned long long wide;
    static long psync[SHMEM_SYNC_SIZE];
    for (int i = 0; i < SHMEM_SYNC_SIZE; i++) {
        psync[i] = SHMEM_SYNC_VALUE;
    }
    shmem_barrier_all();
    shmem_inc(&word, 0);
    shmem_add(&word, 1L, 0);
    CHECK(shmem_finc(&word, 0) >= 2);
    CHECK(shmem_fadd(&word, 1L, 0) >= 2);
    shmem_sync(0, 0, pes, psync);
    CHECK_EQUAL(shmem_sync(SHMEM_TEAM_WORLD), 0);
    shmem_barrier_all();
    CHECK_EQUAL(shmem_fetch(&word, 0), 4 * pes);
    shmem_barrier_all();
    shmem_set(&word, 4L, next_pe());
    CHECK_EQUAL(shmem_cswap(&word, 4L, 5L, next_pe()), 4);
    CHECK_EQUAL(shmem_swap(&word, 6L, next_pe()), 5);
    shmem_set(&real, 1.5, next_pe());
    CHECK(shmem_swap(&real, 2.5, next_pe()) == 1.5);
    /* The old names have the types of the new ones. */
    shmem_set(&whole, 4U, next_pe());
    CHECK_EQUAL(shmem_fadd(&whole, 3U, next_pe()), 4);
    CHECK_EQUAL(shmem_finc(&whole, next_pe()), 7);
    CHECK_EQUAL(shmem_cswap(&wide, 0ULL, 5ULL, next_pe()), 0);
    shmem_add(&wide, 2ULL, next_pe());
    shmem_inc(&wide, next_pe());
    CHECK_EQUAL(shmem_fetch(&wide, next_pe()), 8);
    CHECK_EQUAL(shmem_swap(&wide, 1ULL, next_pe()), 8);
    shmem_short_p(&half, 3, next_pe());
    shmem_wait_until(&half, SHMEM_CMP_EQ, (short)3);
    shmem_wait_until(&word, SHMEM_CMP_EQ, 6);
    shmem_wait(&word, 5);
    shmem_barrier_all();
}

static void signals(shmem_ctx_t ctx)
{
    static uint64_t word;
    word = 0;
    shmem_barrier_all();
    shmem_signal_add(&word, 1, next_pe());
    shmem_signal_add(ctx, &word, 2, next_pe());
    shmem_ctx_quiet(ctx);
    shmem_barrier_all();
    CHECK_EQUAL(shmem_signal_fetch(&word), 3);
    shmem_barrier_all();
    shmem_signal_set(&word, 7, next_pe());
    shmem_signal_set(ctx, &word, 8, next_pe());
    shmem_signal_wait_until(&word, SHMEM_CMP_EQ, 8);
    shmem_barrier_all();
}

int main(void)
{
    shmem_ctx_t ctx;
    begin();
    CHECK_EQUAL(shmem_ctx_create(0, &ctx), 0);
#define RUN_RMA(T, C) rma_##T(ctx), moves_##T();
    OWN_TYPES(RUN_RMA)
#define RUN_AMO(T, C) amo_##T(ctx);
    OWN_AMO_TYPES(RUN_AMO)
    bits_uint(ctx);
    bits_ulong(ctx);
    bits_ulonglong(ctx);
    bits_int(ctx);
    bits_long(ctx);
    old_names();
    signals(ctx);
    shmem_ctx_destroy(ctx);
    end("generic");
    return 0;
}
