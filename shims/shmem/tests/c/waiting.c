/* Waiting and testing: every type, every comparison, lists with statuses and with a value for each. */
#include "check.h"

enum { COUNT = 2 * PES_MAX };

#define TEST(T, C)                                                                                                     \
    static C word_##T, words_##T[COUNT];                                                                               \
    static void test_##T(void)                                                                                         \
    {                                                                                                                  \
        int statuses[COUNT] = { 0 };                                                                                   \
        size_t places[COUNT];                                                                                          \
        C values[COUNT];                                                                                               \
        const size_t count = (size_t)pes;                                                                              \
        shmem_barrier_all();                                                                                           \
        shmem_##T##_p(&word_##T, 7, next_pe());                                                                        \
        shmem_##T##_wait_until(&word_##T, SHMEM_CMP_EQ, 7);                                                            \
        shmem_##T##_wait_until(&word_##T, SHMEM_CMP_NE, 6);                                                            \
        shmem_##T##_wait_until(&word_##T, SHMEM_CMP_GT, 6);                                                            \
        shmem_##T##_wait_until(&word_##T, SHMEM_CMP_GE, 7);                                                            \
        shmem_##T##_wait_until(&word_##T, SHMEM_CMP_LT, 8);                                                            \
        shmem_##T##_wait_until(&word_##T, SHMEM_CMP_LE, 7);                                                            \
        CHECK(shmem_##T##_test(&word_##T, SHMEM_CMP_EQ, 7) && !shmem_##T##_test(&word_##T, SHMEM_CMP_GT, 7));          \
        for (int pe = 0; pe < pes; pe++) {                                                                             \
            shmem_##T##_atomic_set(&words_##T[me], (C)(me + 1), pe);                                                   \
        }                                                                                                              \
        shmem_##T##_wait_until_all(words_##T, count, NULL, SHMEM_CMP_GT, 0);                                           \
        for (int pe = 0; pe < pes; pe++) {                                                                             \
            CHECK_EQUAL(words_##T[pe], pe + 1);                                                                        \
            values[pe] = (C)(pe + 1);                                                                                  \
        }                                                                                                              \
        CHECK(shmem_##T##_test_all(words_##T, count, statuses, SHMEM_CMP_GE, 1));                                      \
        CHECK_EQUAL(shmem_##T##_test_all(words_##T, count, NULL, SHMEM_CMP_EQ, 1), pes == 1);                          \
        CHECK_EQUAL(shmem_##T##_wait_until_any(words_##T, count, NULL, SHMEM_CMP_EQ, (C)pes), pes - 1);                \
        CHECK_EQUAL(shmem_##T##_test_any(words_##T, count, NULL, SHMEM_CMP_EQ, 1), 0);                                 \
        CHECK(shmem_##T##_test_any(words_##T, count, NULL, SHMEM_CMP_EQ, 99) == SIZE_MAX);                             \
        CHECK_EQUAL(shmem_##T##_wait_until_some(words_##T, count, places, NULL, SHMEM_CMP_GT, 0), pes);                \
        CHECK_EQUAL(places[pes - 1], pes - 1);                                                                         \
        CHECK_EQUAL(shmem_##T##_test_some(words_##T, count, places, NULL, SHMEM_CMP_EQ, 99), 0);                       \
        shmem_##T##_wait_until_all_vector(words_##T, count, NULL, SHMEM_CMP_EQ, values);                               \
        CHECK(shmem_##T##_test_all_vector(words_##T, count, NULL, SHMEM_CMP_EQ, values));                              \
        CHECK(shmem_##T##_wait_until_any_vector(words_##T, count, NULL, SHMEM_CMP_EQ, values) < count);                \
        /* Of several that hold each is found by and by, in each kind of call, though others are made in between. */   \
        size_t found[4][COUNT] = { { 0 } };                                                                            \
        for (int turn = 0; turn < 16 * pes; turn++) {                                                                  \
            found[0][shmem_##T##_wait_until_any(words_##T, count, NULL, SHMEM_CMP_GT, 0)]++;                           \
            found[1][shmem_##T##_test_any(words_##T, count, NULL, SHMEM_CMP_GT, 0)]++;                                 \
            found[2][shmem_##T##_wait_until_any_vector(words_##T, count, NULL, SHMEM_CMP_EQ, values)]++;               \
            found[3][shmem_##T##_test_any_vector(words_##T, count, NULL, SHMEM_CMP_EQ, values)]++;                     \
        }                                                                                                              \
        for (int pe = 0; pe < pes; pe++) {                                                                             \
            CHECK(found[0][pe] > 0 && found[1][pe] > 0 && found[2][pe] > 0 && found[3][pe] > 0);                       \
        }                                                                                                              \
        CHECK_EQUAL(shmem_##T##_test_some_vector(words_##T, count, places, NULL, SHMEM_CMP_EQ, values), pes);          \
        values[0] = 50;                                                                                                \
        CHECK(!shmem_##T##_test_all_vector(words_##T, count, NULL, SHMEM_CMP_EQ, values));                             \
        CHECK_EQUAL(shmem_##T##_wait_until_some_vector(words_##T, count, places, NULL, SHMEM_CMP_LE, values), pes);     \
        /* What has a status is left out; where all have one, or there is nothing, there is nothing to wait for. */   \
        statuses[0] = 1;                                                                                               \
        values[0] = 1;                                                                                                 \
        CHECK_EQUAL(shmem_##T##_test_any_vector(words_##T, count, statuses, SHMEM_CMP_EQ, values) != SIZE_MAX, pes > 1); \
        CHECK_EQUAL(shmem_##T##_test_some(words_##T, count, places, statuses, SHMEM_CMP_GT, 0), pes - 1);              \
        for (int pe = 0; pe < pes; pe++) {                                                                             \
            statuses[pe] = 1;                                                                                          \
        }                                                                                                              \
        CHECK(shmem_##T##_wait_until_any(words_##T, count, statuses, SHMEM_CMP_EQ, 99) == SIZE_MAX);                   \
        CHECK(shmem_##T##_wait_until_any(words_##T, 0, NULL, SHMEM_CMP_EQ, 99) == SIZE_MAX);                           \
        CHECK_EQUAL(shmem_##T##_wait_until_some(words_##T, count, places, statuses, SHMEM_CMP_EQ, 99), 0);             \
        CHECK_EQUAL(shmem_##T##_wait_until_some(words_##T, 0, places, NULL, SHMEM_CMP_EQ, 99), 0);                     \
        shmem_##T##_wait_until_all(words_##T, count, statuses, SHMEM_CMP_EQ, 99);                                      \
        CHECK(shmem_##T##_test_all(words_##T, count, statuses, SHMEM_CMP_EQ, 99));                                     \
        CHECK(shmem_##T##_test_all(words_##T, 0, NULL, SHMEM_CMP_EQ, 99));                                             \
        shmem_barrier_all();                                                                                           \
    }
AMO_TYPES(TEST)

/* One PE after the other, each woken by the one before, until all have had several turns. */
static void chain(void)
{
    static long turn;
    shmem_barrier_all();
    for (long round = 0; round < 20; round++) {
        const long mine = round * pes + me;
        shmem_long_wait_until(&turn, SHMEM_CMP_GE, mine);
        shmem_long_p(&turn, mine + 1, next_pe());
    }
    shmem_barrier_all();
}

/* What was put before the signal is there when the signal is. */
static void signals(void)
{
    enum { LONGS = 5000 };
    static uint64_t added, set;
    long *area = (long *)shmem_malloc(LONGS * sizeof(long)), *source = (long *)malloc(LONGS * sizeof(long));
    for (int turn = 1; turn <= 5; turn++) {
        for (long i = 0; i < LONGS; i++) {
            source[i] = turn * 1000000 + me * 10000 + i;
        }
        shmem_long_put_signal(area, source, LONGS / 2, &added, 1, SHMEM_SIGNAL_ADD, next_pe());
        shmem_putmem_signal_nbi(area + LONGS / 2, source + LONGS / 2, LONGS / 2 * sizeof(long), &set, (uint64_t)turn,
                                SHMEM_SIGNAL_SET, next_pe());
        CHECK_EQUAL(shmem_signal_wait_until(&added, SHMEM_CMP_EQ, (uint64_t)turn), turn);
        CHECK(area[LONGS / 2 - 1] == turn * 1000000 + previous_pe() * 10000 + LONGS / 2 - 1);
        shmem_signal_wait_until(&set, SHMEM_CMP_GE, (uint64_t)turn);
        for (long i = 0; i < LONGS; i++) {
            CHECK(area[i] == turn * 1000000 + previous_pe() * 10000 + i);
        }
        shmem_barrier_all();
    }
    /* A signal without elements. */
    shmem_ctx_putmem_signal(SHMEM_CTX_DEFAULT, area, source, 0, &set, 99, SHMEM_SIGNAL_SET, next_pe());
    shmem_signal_wait_until(&set, SHMEM_CMP_EQ, 99);
    CHECK_EQUAL(shmem_signal_fetch(&set), 99);
    shmem_barrier_all();
    shmem_free(area);
    free(source);
}

int main(void)
{
    begin();
#define RUN(T, C) test_##T();
    AMO_TYPES(RUN)
    chain();
    signals();
    end("waiting");
    return 0;
}
