/* Put and get of every type, blocking and not, contiguous, strided and of blocks, on the heap and on statics, in contexts. */
#include "check.h"

enum { COUNT = 60 };

#define VALUE(C, seed, at) ((C)(((seed) * 7 + (at)) % 100 + 1))

#define TEST(T, C)                                                                                                     \
    static C static_##T[COUNT];                                                                                        \
    static void test_area_##T(C *area, shmem_ctx_t ctx)                                                                \
    {                                                                                                                  \
        C local[COUNT], back[COUNT];                                                                                   \
        const int to = next_pe(), from = previous_pe();                                                                \
        for (int i = 0; i < COUNT; i++) {                                                                              \
            local[i] = VALUE(C, me, i);                                                                                \
            back[i] = 0;                                                                                               \
        }                                                                                                              \
        shmem_barrier_all();                                                                                           \
        shmem_##T##_put(area, local, COUNT, to);                                                                       \
        shmem_barrier_all();                                                                                           \
        for (int i = 0; i < COUNT; i++) {                                                                              \
            CHECK(area[i] == VALUE(C, from, i));                                                                       \
        }                                                                                                              \
        shmem_##T##_get(back, area, COUNT, to);                                                                        \
        for (int i = 0; i < COUNT; i++) {                                                                              \
            CHECK(back[i] == local[i]);                                                                                \
        }                                                                                                              \
        shmem_barrier_all();                                                                                           \
        shmem_##T##_p(&area[3], VALUE(C, me, 50), to);                                                                 \
        shmem_ctx_##T##_p(ctx, &area[4], VALUE(C, me, 51), to);                                                        \
        shmem_quiet();                                                                                                 \
        shmem_ctx_quiet(ctx);                                                                                          \
        shmem_barrier_all();                                                                                           \
        CHECK(area[3] == VALUE(C, from, 50) && area[4] == VALUE(C, from, 51));                                         \
        CHECK(shmem_##T##_g(&area[3], to) == VALUE(C, me, 50));                                                        \
        CHECK(shmem_ctx_##T##_g(ctx, &area[4], to) == VALUE(C, me, 51));                                               \
        shmem_barrier_all();                                                                                           \
        for (int i = 0; i < COUNT; i++) {                                                                              \
            area[i] = 0;                                                                                               \
            back[i] = 0;                                                                                               \
        }                                                                                                              \
        shmem_barrier_all();                                                                                           \
        shmem_##T##_iput(area, local, 3, 2, 10, to);                                                                   \
        shmem_ctx_##T##_ibput(ctx, area + 40, local + 30, 5, 3, 2, 3, to);                                             \
        shmem_ctx_quiet(ctx);                                                                                          \
        shmem_barrier_all();                                                                                           \
        for (int i = 0; i < 30; i++) {                                                                                 \
            CHECK(area[i] == (i % 3 ? (C)0 : VALUE(C, from, i / 3 * 2)));                                              \
        }                                                                                                              \
        for (int i = 0; i < 15; i++) {                                                                                 \
            CHECK(area[40 + i] == (i % 5 < 2 ? VALUE(C, from, 30 + i / 5 * 3 + i % 5) : (C)0));                        \
        }                                                                                                              \
        shmem_ctx_##T##_iget(ctx, back, area, 2, 3, 10, to);                                                           \
        shmem_##T##_ibget(back + 30, area + 40, 3, 5, 2, 3, to);                                                       \
        for (int i = 0; i < 10; i++) {                                                                                 \
            CHECK(back[i * 2] == VALUE(C, me, i * 2));                                                                 \
        }                                                                                                              \
        for (int i = 0; i < 8; i++) {                                                                                  \
            CHECK(back[30 + i] == (i % 3 < 2 ? VALUE(C, me, 30 + i) : (C)0));                                          \
        }                                                                                                              \
        shmem_barrier_all();                                                                                           \
        shmem_##T##_put_nbi(area, local, COUNT / 2, to);                                                               \
        shmem_ctx_##T##_put_nbi(ctx, area + COUNT / 2, local + COUNT / 2, COUNT / 2, to);                              \
        shmem_quiet();                                                                                                 \
        shmem_ctx_quiet(ctx);                                                                                          \
        shmem_##T##_get_nbi(back, area, COUNT / 2, to);                                                                \
        shmem_ctx_##T##_get_nbi(ctx, back + COUNT / 2, area + COUNT / 2, COUNT / 2, to);                               \
        shmem_quiet();                                                                                                 \
        shmem_ctx_quiet(ctx);                                                                                          \
        for (int i = 0; i < COUNT; i++) {                                                                              \
            CHECK(back[i] == local[i]);                                                                                \
        }                                                                                                              \
        shmem_barrier_all();                                                                                           \
        CHECK(area[COUNT - 1] == VALUE(C, from, COUNT - 1));                                                           \
        shmem_##T##_put(area, local, 0, to);                                                                           \
        shmem_##T##_get(back, area, 0, to);                                                                            \
        shmem_##T##_iput(area, local, 1, 1, 0, to);                                                                    \
        shmem_barrier_all();                                                                                           \
        CHECK(area[0] == VALUE(C, from, 0));                                                                           \
    }                                                                                                                  \
    static void test_##T(shmem_ctx_t ctx)                                                                              \
    {                                                                                                                  \
        C *heap = (C *)shmem_malloc(COUNT * sizeof(C));                                                                \
        CHECK(heap != NULL);                                                                                           \
        test_area_##T(heap, SHMEM_CTX_DEFAULT);                                                                        \
        test_area_##T(static_##T, ctx);                                                                                \
        shmem_free(heap);                                                                                              \
    }
RMA_TYPES(TEST)

#define SIZED(S, BYTES)                                                                                                \
    static void test_size_##S(char *area)                                                                              \
    {                                                                                                                  \
        static char local[30 * BYTES], back[30 * BYTES];                                                               \
        for (int i = 0; i < 30 * BYTES; i++) {                                                                         \
            local[i] = VALUE(char, me, i);                                                                             \
        }                                                                                                              \
        shmem_barrier_all();                                                                                           \
        memset(area, 0, 60 * BYTES);                                                                                   \
        memset(back, 0, sizeof back);                                                                                  \
        shmem_barrier_all();                                                                                           \
        shmem_put##S(area, local, 30, next_pe());                                                                      \
        shmem_quiet();                                                                                                 \
        shmem_get##S(back, area, 30, next_pe());                                                                       \
        CHECK(memcmp(back, local, 30 * BYTES) == 0);                                                                   \
        shmem_iput##S(area, local, 2, 1, 30, next_pe());                                                               \
        shmem_quiet();                                                                                                 \
        memset(back, 0, sizeof back);                                                                                  \
        shmem_iget##S(back, area, 1, 2, 30, next_pe());                                                                \
        CHECK(memcmp(back, local, 30 * BYTES) == 0);                                                                   \
        shmem_put##S##_nbi(area, local, 30, next_pe());                                                                \
        shmem_quiet();                                                                                                 \
        memset(back, 0, sizeof back);                                                                                  \
        shmem_ctx_get##S##_nbi(SHMEM_CTX_DEFAULT, back, area, 30, next_pe());                                          \
        shmem_quiet();                                                                                                 \
        CHECK(memcmp(back, local, 30 * BYTES) == 0);                                                                   \
        shmem_barrier_all();                                                                                           \
        for (int i = 0; i < 30 * BYTES; i++) {                                                                         \
            CHECK(area[i] == VALUE(char, previous_pe(), i));                                                           \
        }                                                                                                              \
    }
SIZED(8, 1)
SIZED(16, 2)
SIZED(32, 4)
SIZED(64, 8)
SIZED(128, 16)

/* Larger than what is copied at once. */
static void test_large(void)
{
    const size_t bytes = 3u << 20;
    unsigned char *area = (unsigned char *)shmem_malloc(bytes), *local = (unsigned char *)malloc(bytes);
    unsigned char *back = (unsigned char *)malloc(bytes);
    CHECK(area && local && back);
    for (size_t i = 0; i < bytes; i++) {
        local[i] = (unsigned char)(i * 31 + (size_t)me);
    }
    shmem_putmem_nbi(area, local, bytes, next_pe());
    shmem_barrier_all();
    for (size_t i = 0; i < bytes; i++) {
        CHECK(area[i] == (unsigned char)(i * 31 + (size_t)previous_pe()));
    }
    shmem_getmem_nbi(back, area, bytes, next_pe());
    shmem_quiet();
    CHECK(memcmp(back, local, bytes) == 0);
    shmem_barrier_all();
    shmem_free(area);
    free(local);
    free(back);
}

int main(void)
{
    shmem_ctx_t ctx;
    begin();
    CHECK_EQUAL(shmem_ctx_create(0, &ctx), 0);
#define RUN(T, C) test_##T(ctx);
    RMA_TYPES(RUN)
    char *area = (char *)shmem_malloc(60 * 16);
    test_size_8(area);
    test_size_16(area);
    test_size_32(area);
    test_size_64(area);
    test_size_128(area);
    shmem_free(area);
    test_large();
    shmem_ctx_destroy(ctx);
    end("rma_types");
    return 0;
}
