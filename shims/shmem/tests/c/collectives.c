/* Collectives over teams: every type, lengths from none to more than a slot, in place, back to back. */
#include "check.h"

#include <string.h>

enum { MOST = 1500 };
static const size_t lengths[] = { 0, 1, 7, 128, MOST };

#define VALUE(C, pe, at) ((C)((pe) * 3 + (int)(at) % 5 + 1))

static void one_team(shmem_team_t team);

#define MOVES(T, C)                                                                                                    \
    static void moves_##T(shmem_team_t team, size_t n)                                                                 \
    {                                                                                                                  \
        const int mine = shmem_team_my_pe(team), size = shmem_team_n_pes(team);                                        \
        static C source[PES_MAX * 40], dest[PES_MAX * 80];                                                             \
        n = n > 37 ? 37 : n;                                                                                           \
        for (size_t i = 0; i < PES_MAX * 40; i++) {                                                                    \
            source[i] = VALUE(C, mine, i);                                                                             \
        }                                                                                                              \
        memset(dest, 0, sizeof dest);                                                                                  \
        shmem_team_sync(team);                                                                                         \
        CHECK_EQUAL(shmem_##T##_broadcast(team, dest, source, n, size - 1), 0);                                        \
        for (size_t i = 0; i < n; i++) {                                                                               \
            CHECK(dest[i] == VALUE(C, size - 1, i));                                                                   \
        }                                                                                                              \
        CHECK(dest[n] == 0);                                                                                           \
        CHECK_EQUAL(shmem_##T##_fcollect(team, dest, source, n), 0);                                                   \
        for (int pe = 0; pe < size; pe++) {                                                                            \
            for (size_t i = 0; i < n; i++) {                                                                           \
                CHECK(dest[(size_t)pe * n + i] == VALUE(C, pe, i));                                                    \
            }                                                                                                          \
        }                                                                                                              \
        /* Each has another number of elements; every other one has none. */                                           \
        const size_t own = mine % 2 ? 0 : n + (size_t)mine;                                                            \
        CHECK_EQUAL(shmem_##T##_collect(team, dest, source, own), 0);                                                  \
        size_t at = 0;                                                                                                 \
        for (int pe = 0; pe < size; pe += 2) {                                                                         \
            for (size_t i = 0; i < n + (size_t)pe; i++) {                                                              \
                CHECK(dest[at++] == VALUE(C, pe, i));                                                                  \
            }                                                                                                          \
        }                                                                                                              \
        CHECK_EQUAL(shmem_##T##_alltoall(team, dest, source, n), 0);                                                   \
        for (int pe = 0; pe < size; pe++) {                                                                            \
            for (size_t i = 0; i < n; i++) {                                                                           \
                CHECK(dest[(size_t)pe * n + i] == VALUE(C, pe, (size_t)mine * n + i));                                 \
            }                                                                                                          \
        }                                                                                                              \
        const size_t few = n > 18 ? 18 : n;                                                                            \
        CHECK_EQUAL(shmem_##T##_alltoalls(team, dest, source, 3, 2, few), 0);                                          \
        for (int pe = 0; pe < size; pe++) {                                                                            \
            for (size_t i = 0; i < few; i++) {                                                                         \
                CHECK(dest[((size_t)pe * few + i) * 3] == VALUE(C, pe, ((size_t)mine * few + i) * 2));                 \
            }                                                                                                          \
        }                                                                                                              \
        shmem_team_sync(team);                                                                                         \
    }
RMA_TYPES(MOVES)

#define REDUCTION(T, C, OP, START, STEP)                                                                               \
    static void OP##_##T(shmem_team_t team, size_t n)                                                                  \
    {                                                                                                                  \
        const int mine = shmem_team_my_pe(team), size = shmem_team_n_pes(team);                                        \
        static C source[MOST], dest[MOST];                                                                             \
        for (int in_place = 0; in_place < 2; in_place++) {                                                             \
            C *target = in_place ? source : dest;                                                                      \
            for (size_t i = 0; i < n; i++) {                                                                           \
                source[i] = VALUE(C, mine, i);                                                                         \
            }                                                                                                          \
            shmem_team_sync(team);                                                                                     \
            CHECK_EQUAL(shmem_##T##_##OP##_reduce(team, target, source, n), 0);                                        \
            for (size_t i = 0; i < n; i++) {                                                                           \
                C expected = START;                                                                                    \
                for (int pe = 0; pe < size; pe++) {                                                                    \
                    const C value = VALUE(C, pe, i);                                                                   \
                    STEP;                                                                                              \
                }                                                                                                      \
                CHECK(target[i] == expected);                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }
#define BITS(T, C)                                                                                                     \
    REDUCTION(T, C, and, (C)-1, expected = (C)(expected & value))                                                      \
    REDUCTION(T, C, or, 0, expected = (C)(expected | value))                                                           \
    REDUCTION(T, C, xor, 0, expected = (C)(expected ^ value))
REDUCE_BITS_TYPES(BITS)
#define ORDER(T, C)                                                                                                    \
    REDUCTION(T, C, max, 0, expected = value > expected ? value : expected)                                            \
    REDUCTION(T, C, min, 127, expected = value < expected ? value : expected)                                          \
    REDUCTION(T, C, sum, 0, expected = (C)(expected + value))
RMA_TYPES(ORDER)

/* Products of few values, so that none is too large for its type. */
#define PRODUCT(T, C)                                                                                                  \
    static void product_##T(shmem_team_t team)                                                                         \
    {                                                                                                                  \
        static C source, dest;                                                                                         \
        source = (C)(shmem_team_my_pe(team) < 3 ? 2 : 1);                                                              \
        shmem_team_sync(team);                                                                                         \
        CHECK_EQUAL(shmem_##T##_prod_reduce(team, &dest, &source, 1), 0);                                              \
        const int size = shmem_team_n_pes(team);                                                                       \
        CHECK(dest == (C)(1 << (size < 3 ? size : 3)));                                                                \
    }
RMA_TYPES(PRODUCT)

#define SCAN(T, C)                                                                                                     \
    static void scan_##T(shmem_team_t team, size_t n)                                                                  \
    {                                                                                                                  \
        const int mine = shmem_team_my_pe(team);                                                                       \
        static C source[MOST], dest[MOST];                                                                             \
        for (int with_own = 0; with_own < 2; with_own++) {                                                             \
            for (size_t i = 0; i < n; i++) {                                                                           \
                source[i] = VALUE(C, mine, i);                                                                         \
                dest[i] = 77;                                                                                          \
            }                                                                                                          \
            C *target = with_own ? source : dest;                                                                      \
            shmem_team_sync(team);                                                                                     \
            if (with_own) {                                                                                            \
                CHECK_EQUAL(shmem_##T##_sum_inscan(team, target, source, n), 0);                                       \
            } else {                                                                                                   \
                CHECK_EQUAL(shmem_##T##_sum_exscan(team, target, source, n), 0);                                       \
            }                                                                                                          \
            for (size_t i = 0; i < n; i++) {                                                                           \
                C expected = 0;                                                                                        \
                for (int pe = 0; pe < mine + with_own; pe++) {                                                         \
                    expected = (C)(expected + VALUE(C, pe, i));                                                        \
                }                                                                                                      \
                CHECK(target[i] == expected);                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }
RMA_TYPES(SCAN)

static void complex_sums(shmem_team_t team)
{
    /* Real and imaginary parts: as in C's complex numbers. */
    static float sources[2 * 3], sums[2 * 3];
    static double source[2], product[2];
    const int mine = shmem_team_my_pe(team), size = shmem_team_n_pes(team);
    for (int i = 0; i < 6; i++) {
        sources[i] = (float)(mine + i);
    }
    source[0] = 0;
    source[1] = 1;
    shmem_team_sync(team);
    CHECK_EQUAL(shmem_complexf_sum_reduce(team, (shmem_complexf_ *)sums, (shmem_complexf_ *)sources, 3), 0);
    for (int i = 0; i < 6; i++) {
        CHECK(sums[i] == (float)(size * i + size * (size - 1) / 2));
    }
    /* i to the power of the number of members. */
    CHECK_EQUAL(shmem_complexd_prod_reduce(team, (shmem_complexd_ *)product, (shmem_complexd_ *)source, 1), 0);
    const double real[4] = { 1, 0, -1, 0 }, imaginary[4] = { 0, 1, 0, -1 };
    CHECK(product[0] == real[size % 4] && product[1] == imaginary[size % 4]);
}

/* Many megabytes, and many in a row. */
static void large(shmem_team_t team)
{
    enum { LARGE = 400000 };
    const int mine = shmem_team_my_pe(team), size = shmem_team_n_pes(team);
    long *source = (long *)shmem_malloc(LARGE * sizeof(long)), *dest = (long *)shmem_malloc(LARGE * sizeof(long));
    CHECK(source && dest);
    for (long i = 0; i < LARGE; i++) {
        source[i] = i * (mine + 1);
    }
    shmem_team_sync(team);
    CHECK_EQUAL(shmem_long_sum_reduce(team, dest, source, LARGE), 0);
    for (long i = 0; i < LARGE; i++) {
        CHECK(dest[i] == i * (size * (size + 1) / 2));
    }
    CHECK_EQUAL(shmem_long_broadcast(team, dest, source, LARGE, 0), 0);
    CHECK(dest[LARGE - 1] == LARGE - 1);
    CHECK_EQUAL(shmem_long_max_reduce(team, source, source, LARGE), 0);
    for (long i = 0; i < LARGE; i++) {
        CHECK(source[i] == i * size);
    }
    for (int turn = 0; turn < 100; turn++) {
        static long one, sum;
        one = turn + mine;
        CHECK_EQUAL(shmem_long_sum_reduce(team, &sum, &one, 1), 0);
        CHECK_EQUAL(sum, size * turn + size * (size - 1) / 2);
        shmem_team_sync(team);
    }
    shmem_free(dest);
    shmem_free(source);
}

/* Lengths around those at which the way changes that elements take, from every root, into the source and elsewhere; and
   each member changes what it gave as soon as it may. */
static void ways(shmem_team_t team)
{
    enum { LONGEST = 9000 };
    static const size_t around[] = { 1, 7, 8, 255, 256, 257, 512, 513, 8191, 8192, LONGEST };
    static long source[LONGEST], dest[LONGEST];
    const int mine = shmem_team_my_pe(team), size = shmem_team_n_pes(team);
    for (size_t at = 0; at < sizeof around / sizeof *around; at++) {
        const size_t n = around[at];
        for (int turn = 0; turn < 2 * size; turn++) {
            const int root = turn / 2;
            long *target = turn % 2 ? source : dest;
            for (size_t i = 0; i < n; i++) {
                source[i] = (mine + turn) * 100000L + (long)i;
                dest[i] = -1;
            }
            shmem_team_sync(team);
            CHECK_EQUAL(shmem_long_broadcast(team, target, source, n, root), 0);
            for (size_t i = 0; i < n; i++) {
                CHECK_EQUAL(target[i], (root + turn) * 100000L + (long)i);
                source[i] = (mine + turn) * 70000L + (long)i;
            }
            shmem_team_sync(team);
            CHECK_EQUAL(shmem_long_sum_reduce(team, target, source, n), 0);
            for (size_t i = 0; i < n; i++) {
                CHECK_EQUAL(target[i], (size * turn + size * (size - 1) / 2) * 70000L + size * (long)i);
                source[i] = target[i] = -3;
            }
        }
    }
}

/* All give each other much, and use what they gave at once again. Nobody waits: a target may still be read when others go on. */
static void exchanges(shmem_team_t team)
{
    /* On both sides of the bounds from which on more is put: 16, 32, 64 and 128 KiB. The longest takes long, so it has one turn. */
    enum { LONGEST = 16400 };
    static const size_t around[] = { 1, 127, 128, 129, 1000, 2048, 9000, LONGEST };
    static long source[PES_MAX * LONGEST], dest[PES_MAX * LONGEST];
    const int mine = shmem_team_my_pe(team), size = shmem_team_n_pes(team);
    for (size_t at = 0; at < sizeof around / sizeof *around; at++) {
        const size_t n = around[at];
        for (int turn = 0; turn < (n < LONGEST ? 3 : 1); turn++) {
            for (size_t i = 0; i < n * (size_t)size; i++) {
                source[i] = (mine * 100L + turn) * 1000000L + (long)i;
                dest[i] = -1;
            }
            CHECK_EQUAL(shmem_long_alltoall(team, dest, source, n), 0);
            memset(source, 7, sizeof *source * n * (size_t)size);
            for (int pe = 0; pe < size; pe++) {
                for (size_t i = 0; i < n; i++) {
                    CHECK_EQUAL(dest[(size_t)pe * n + i], (pe * 100L + turn) * 1000000L + (long)((size_t)mine * n + i));
                }
            }
            for (size_t i = 0; i < n; i++) {
                source[i] = (mine * 50L + turn) * 1000000L - (long)i;
            }
            CHECK_EQUAL(shmem_long_fcollect(team, dest, source, n), 0);
            memset(source, 9, sizeof *source * n);
            for (int pe = 0; pe < size; pe++) {
                for (size_t i = 0; i < n; i++) {
                    CHECK_EQUAL(dest[(size_t)pe * n + i], (pe * 50L + turn) * 1000000L - (long)i);
                }
            }
        }
    }
}

/* Each in its turn is the root, and uses its source again at once: nobody waits for anybody but the root. */
static void turns(shmem_team_t team)
{
    enum { TURNS = 400, LONGEST = 300 };
    static const size_t few[] = { 1, 7, 8, LONGEST, 1, 1 };
    static long source[LONGEST], dest[LONGEST], to_all[PES_MAX], from_all[PES_MAX];
    const int mine = shmem_team_my_pe(team), size = shmem_team_n_pes(team);
    for (int turn = 0; turn < TURNS; turn++) {
        const size_t n = few[turn % 6];
        const int root = turn / 11 % size;
        for (size_t i = 0; i < n; i++) {
            source[i] = mine == root ? turn * 1000 + (long)i : -1;
        }
        CHECK_EQUAL(shmem_long_broadcast(team, dest, source, n, root), 0);
        for (size_t i = 0; i < n; i++) {
            source[i] = -2;
            CHECK_EQUAL(dest[i], turn * 1000 + (long)i);
        }
        if (turn % 9 == 0) {
            for (int pe = 0; pe < size; pe++) {
                to_all[pe] = turn * 1000 + mine * 30 + pe;
            }
            CHECK_EQUAL(shmem_long_alltoall(team, from_all, to_all, 1), 0);
            for (int pe = 0; pe < size; pe++) {
                CHECK_EQUAL(from_all[pe], turn * 1000 + pe * 30 + mine);
            }
        }
    }
    shmem_team_sync(team);
}

static void one_team(shmem_team_t team)
{
    for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
        const size_t n = lengths[at];
#define MOVE(T, C) moves_##T(team, n);
        RMA_TYPES(MOVE)
#define REDUCE_BITS(T, C) and_##T(team, n), or_##T(team, n), xor_##T(team, n);
        REDUCE_BITS_TYPES(REDUCE_BITS)
#define REDUCE_ORDER(T, C) max_##T(team, n), min_##T(team, n), sum_##T(team, n), scan_##T(team, n);
        RMA_TYPES(REDUCE_ORDER)
    }
#define MULTIPLY(T, C) product_##T(team);
    RMA_TYPES(MULTIPLY)
    complex_sums(team);
    exchanges(team);
    turns(team);
    ways(team);
}

int main(void)
{
    shmem_team_t odd_and_even, backward;
    begin();
    CHECK_EQUAL(shmem_int_sum_reduce(SHMEM_TEAM_INVALID, NULL, NULL, 0) != 0, 1);
    one_team(SHMEM_TEAM_WORLD);
    large(SHMEM_TEAM_WORLD);
    for (int first = 0; first < 2 && first < pes; first++) {
        CHECK_EQUAL(shmem_team_split_strided(SHMEM_TEAM_WORLD, first, 2, (pes - first + 1) / 2, NULL, 0, &odd_and_even), 0);
        CHECK_EQUAL(odd_and_even != SHMEM_TEAM_INVALID, me % 2 == first);
        if (odd_and_even != SHMEM_TEAM_INVALID) {
            one_team(odd_and_even);
            shmem_team_destroy(odd_and_even);
        }
    }
    /* Its first member is on the last node. */
    CHECK_EQUAL(shmem_team_split_strided(SHMEM_TEAM_WORLD, pes - 1, -1, pes, NULL, 0, &backward), 0);
    ways(backward);
    exchanges(backward);
    turns(backward);
    shmem_team_destroy(backward);
    end("collectives");
    return 0;
}
