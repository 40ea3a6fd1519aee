/* Atomic operations of every type, on the heap and on statics, in contexts, fetching and not, blocking and not. */
#include "check.h"

enum { TURNS = 50 };

#define STANDARD(T, C)                                                                                                 \
    static C counter_##T, other_##T;                                                                                   \
    static void standard_##T(shmem_ctx_t ctx)                                                                          \
    {                                                                                                                  \
        C fetched = 0;                                                                                                 \
        counter_##T = 0;                                                                                               \
        other_##T = 5;                                                                                                 \
        shmem_barrier_all();                                                                                           \
        for (int i = 0; i < TURNS; i++) {                                                                              \
            shmem_##T##_atomic_inc(&counter_##T, 0);                                                                   \
            shmem_ctx_##T##_atomic_add(ctx, &counter_##T, 2, 0);                                                       \
            CHECK(shmem_##T##_atomic_fetch_inc(&counter_##T, 0) < (C)(TURNS * 8 * pes));                               \
            CHECK(shmem_ctx_##T##_atomic_fetch_add(ctx, &counter_##T, 1, 0) < (C)(TURNS * 8 * pes));                   \
            shmem_##T##_atomic_fetch_inc_nbi(&fetched, &counter_##T, 0);                                               \
            shmem_ctx_##T##_atomic_fetch_add_nbi(ctx, &fetched, &counter_##T, 2, 0);                                   \
        }                                                                                                              \
        shmem_ctx_quiet(ctx);                                                                                          \
        shmem_barrier_all();                                                                                           \
        CHECK_EQUAL(shmem_##T##_atomic_fetch(&counter_##T, 0), TURNS * 8 * pes);                                       \
        CHECK_EQUAL(shmem_##T##_atomic_compare_swap(&other_##T, 4, 9, next_pe()), 5);                                  \
        CHECK_EQUAL(shmem_ctx_##T##_atomic_compare_swap(ctx, &other_##T, 5, 7, next_pe()), 5);                         \
        shmem_##T##_atomic_compare_swap_nbi(&fetched, &other_##T, 7, 8, next_pe());                                    \
        shmem_quiet();                                                                                                 \
        CHECK_EQUAL(fetched, 7);                                                                                       \
        shmem_barrier_all();                                                                                           \
        CHECK_EQUAL(other_##T, 8);                                                                                     \
        shmem_barrier_all();                                                                                           \
    }
AMO_TYPES(STANDARD)

#define EXTENDED(T, C)                                                                                                 \
    static void extended_##T(shmem_ctx_t ctx)                                                                          \
    {                                                                                                                  \
        C *word = (C *)shmem_malloc(2 * sizeof(C)), fetched = 0;                                                       \
        word[0] = word[1] = 3;                                                                                         \
        shmem_barrier_all();                                                                                           \
        CHECK(shmem_##T##_atomic_swap(&word[0], (C)(me + 10), next_pe()) == 3);                                        \
        shmem_ctx_##T##_atomic_set(ctx, &word[1], (C)(me + 20), next_pe());                                            \
        shmem_ctx_quiet(ctx);                                                                                          \
        shmem_barrier_all();                                                                                           \
        CHECK(word[0] == (C)(previous_pe() + 10) && word[1] == (C)(previous_pe() + 20));                               \
        CHECK(shmem_ctx_##T##_atomic_fetch(ctx, &word[1], next_pe()) == (C)(me + 20));                                 \
        shmem_##T##_atomic_fetch_nbi(&fetched, &word[0], next_pe());                                                   \
        shmem_quiet();                                                                                                 \
        CHECK(fetched == (C)(me + 10));                                                                                \
        shmem_barrier_all();                                                                                           \
        shmem_ctx_##T##_atomic_swap_nbi(ctx, &fetched, &word[0], (C)1, next_pe());                                     \
        shmem_ctx_quiet(ctx);                                                                                          \
        CHECK(fetched == (C)(me + 10));                                                                                \
        shmem_barrier_all();                                                                                           \
        CHECK(word[0] == 1);                                                                                           \
        shmem_free(word);                                                                                              \
    }
EXTENDED_TYPES(EXTENDED)

#define BITWISE(T, C)                                                                                                  \
    static void bitwise_##T(shmem_ctx_t ctx)                                                                           \
    {                                                                                                                  \
        static C ors, ands, xors;                                                                                      \
        C fetched = 0;                                                                                                 \
        const C mine = (C)1 << me;                                                                                     \
        ors = xors = 0;                                                                                                \
        ands = (C)0xfffff;                                                                                             \
        shmem_barrier_all();                                                                                           \
        shmem_##T##_atomic_or(&ors, mine, 0);                                                                          \
        CHECK((shmem_ctx_##T##_atomic_fetch_or(ctx, &ors, mine, 0) & mine) != 0);                                      \
        CHECK((shmem_##T##_atomic_fetch_and(&ands, ~mine, 0) & mine) != 0);                                            \
        shmem_ctx_##T##_atomic_and(ctx, &ands, ~mine, 0);                                                              \
        shmem_##T##_atomic_xor(&xors, mine, 0);                                                                        \
        CHECK((shmem_##T##_atomic_fetch_xor(&xors, mine, 0) & mine) != 0);                                             \
        shmem_##T##_atomic_fetch_xor_nbi(&fetched, &xors, mine, 0);                                                    \
        shmem_quiet();                                                                                                 \
        CHECK((fetched & mine) == 0);                                                                                  \
        shmem_ctx_##T##_atomic_fetch_or_nbi(ctx, &fetched, &ors, mine, 0);                                             \
        shmem_ctx_##T##_atomic_fetch_and_nbi(ctx, &fetched, &ands, ~mine, 0);                                          \
        shmem_ctx_quiet(ctx);                                                                                          \
        shmem_barrier_all();                                                                                           \
        if (me == 0) {                                                                                                 \
            CHECK_EQUAL(ors, (1 << pes) - 1);                                                                          \
            CHECK_EQUAL(xors, (1 << pes) - 1);                                                                         \
            CHECK_EQUAL(ands, 0xfffff & ~((1 << pes) - 1));                                                            \
        }                                                                                                              \
        shmem_barrier_all();                                                                                           \
    }
BITWISE_TYPES(BITWISE)

/* The short names of old. */
#define OLD(T, C)                                                                                                      \
    static void old_##T(void)                                                                                          \
    {                                                                                                                  \
        static C word;                                                                                                 \
        word = 0;                                                                                                      \
        shmem_barrier_all();                                                                                           \
        shmem_##T##_inc(&word, 0);                                                                                     \
        shmem_##T##_add(&word, 1, 0);                                                                                  \
        CHECK(shmem_##T##_finc(&word, 0) >= 2);                                                                        \
        CHECK(shmem_##T##_fadd(&word, 1, 0) >= 3);                                                                     \
        shmem_barrier_all();                                                                                           \
        CHECK_EQUAL(shmem_##T##_fetch(&word, 0), 4 * pes);                                                             \
        shmem_barrier_all();                                                                                           \
        shmem_##T##_set(&word, (C)me, next_pe());                                                                      \
        shmem_barrier_all();                                                                                           \
        CHECK_EQUAL(shmem_##T##_cswap(&word, (C)me, 99, next_pe()), me);                                               \
        CHECK_EQUAL(shmem_##T##_swap(&word, 98, next_pe()), 99);                                                       \
        shmem_barrier_all();                                                                                           \
        CHECK_EQUAL(word, 98);                                                                                         \
        shmem_barrier_all();                                                                                           \
    }
OLD(int, int)
OLD(long, long)
OLD(longlong, long long)

static void signals(shmem_ctx_t ctx)
{
    static uint64_t added, set;
    added = 0;
    shmem_barrier_all();
    shmem_signal_add(&added, 2, 0);
    shmem_ctx_signal_add(ctx, &added, 3, 0);
    shmem_ctx_signal_set(ctx, &set, 70 + (uint64_t)me, next_pe());
    CHECK_EQUAL(shmem_signal_wait_until(&set, SHMEM_CMP_GE, 70), 70 + previous_pe());
    shmem_ctx_quiet(ctx);
    shmem_barrier_all();
    if (me == 0) {
        CHECK_EQUAL(shmem_signal_fetch(&added), 5 * pes);
    }
    shmem_barrier_all();
}

/* Nobody else updates these words: each old value is the sum of what this PE has added before, whatever else is under way. */
static void started(shmem_ctx_t ctx)
{
    enum { FETCHES = 5000 };
    static long sum;
    static unsigned int small_sum, bits;
    static long old[FETCHES];
    static unsigned int small_old[FETCHES], bits_old[FETCHES];
    sum = 0;
    small_sum = 0xfffffff0u;
    bits = 0;
    shmem_barrier_all();
    for (int i = 0; i < FETCHES; i++) {
        old[i] = small_old[i] = bits_old[i] = 77;
        shmem_long_atomic_fetch_add_nbi(&old[i], &sum, i, next_pe());
        shmem_ctx_uint_atomic_fetch_inc_nbi(ctx, &small_old[i], &small_sum, next_pe());
        if (i % 100 < 30) {
            shmem_ctx_uint_atomic_fetch_xor_nbi(ctx, &bits_old[i], &bits, 1u << (i % 32), next_pe());
        }
    }
    shmem_quiet();
    shmem_ctx_quiet(ctx);
    unsigned int bits_due = 0;
    for (int i = 0; i < FETCHES; i++) {
        CHECK_EQUAL(old[i], (long)i * (i - 1) / 2);
        CHECK_EQUAL(small_old[i], (unsigned int)(0xfffffff0u + (unsigned int)i));
        if (i % 100 < 30) {
            CHECK_EQUAL(bits_old[i], bits_due);
            bits_due ^= 1u << (i % 32);
        }
    }
    shmem_barrier_all();
}

int main(void)
{
    shmem_ctx_t ctx;
    begin();
    CHECK_EQUAL(shmem_ctx_create(SHMEM_CTX_SERIALIZED, &ctx), 0);
#define RUN_STANDARD(T, C) standard_##T(ctx);
    AMO_TYPES(RUN_STANDARD)
#define RUN_EXTENDED(T, C) extended_##T(ctx);
    EXTENDED_TYPES(RUN_EXTENDED)
#define RUN_BITWISE(T, C) bitwise_##T(ctx);
    BITWISE_TYPES(RUN_BITWISE)
    old_int();
    old_long();
    old_longlong();
    signals(ctx);
    started(ctx);
    shmem_ctx_destroy(ctx);
    end("amo_types");
    return 0;
}
