/* Strided transfers of 0 to 7 levels, against a plain loop over the same patch. */
#include "check.h"

enum { LEVELS_MAX = 7, REGION_BYTES = 1 << 18, CASES = 60 };

/* A patch on both sides. */
typedef struct {
    int levels;
    int count[LEVELS_MAX + 1];
    int local_strides[LEVELS_MAX + 1];
    int remote_strides[LEVELS_MAX + 1];
    long local_bytes;
    long remote_bytes;
} shape_t;

static int me, ranks;
static void *parts[RANKS_MAX];

static char *region_of(int target, int origin)
{
    return at(parts[target], (long)origin * REGION_BYTES);
}

/* Strides that keep the runs apart, with gaps; gives the bytes from the first to behind the last one. */
static long spread(unsigned *state, int levels, const int *count, int *strides)
{
    long reach = count[0];
    for (int level = 0; level < levels; level++) {
        strides[level] = (int)reach + (int)draw(state, 9);
        reach = (long)strides[level] * (count[level + 1] - 1) + reach;
    }
    return reach;
}

static shape_t draw_shape(unsigned *state, int levels)
{
    shape_t shape;
    memset(&shape, 0, sizeof shape);
    shape.levels = levels;
    unsigned most = levels <= 2 ? 24 : levels <= 4 ? 5 : 3;
    shape.count[0] = 1 + (int)draw(state, levels == 0 ? 5000 : 40);
    for (int level = 1; level <= levels; level++) {
        /* One repetition is the case that is forgotten most easily. */
        shape.count[level] = 1 + (int)draw(state, most);
    }
    shape.local_bytes = spread(state, levels, shape.count, shape.local_strides);
    shape.remote_bytes = spread(state, levels, shape.count, shape.remote_strides);
    return shape;
}

static long runs_of(const shape_t *shape)
{
    long runs = 1;
    for (int level = 1; level <= shape->levels; level++) {
        runs *= shape->count[level];
    }
    return runs;
}

/* Where run `index` begins, the first level running fastest. */
static long run_offset(const shape_t *shape, const int *strides, long index)
{
    long offset = 0;
    for (int level = 0; level < shape->levels; level++) {
        offset += (long)strides[level] * (index % shape->count[level + 1]);
        index /= shape->count[level + 1];
    }
    return offset;
}

static void copy_patch(const shape_t *shape, char *to, const int *to_strides, const char *from,
                       const int *from_strides)
{
    for (long index = 0; index < runs_of(shape); index++) {
        memcpy(to + run_offset(shape, to_strides, index), from + run_offset(shape, from_strides, index),
               (size_t)shape->count[0]);
    }
}

/* Puts a patch so that it ends with the region's last byte, and reads it back into another one. */
static void check_patch(shape_t *shape, int target, unsigned seed)
{
    CHECK(shape->remote_bytes <= REGION_BYTES);
    char *place = region_of(target, me) + REGION_BYTES - shape->remote_bytes;
    char *source = (char *)allocate((size_t)shape->local_bytes);
    char *back = (char *)allocate((size_t)shape->local_bytes);
    char *expected = (char *)allocate((size_t)shape->local_bytes);
    fill(source, seed, (size_t)shape->local_bytes);
    CHECK_EQUAL(ARMCI_PutS(source, shape->local_strides, place, shape->remote_strides, shape->count, shape->levels,
                           target),
                0);
    memset(back, 0xcc, (size_t)shape->local_bytes);
    memset(expected, 0xcc, (size_t)shape->local_bytes);
    CHECK_EQUAL(ARMCI_GetS(place, shape->remote_strides, back, shape->local_strides, shape->count, shape->levels,
                           target),
                0);
    copy_patch(shape, expected, shape->local_strides, source, shape->local_strides);
    CHECK(memcmp(back, expected, (size_t)shape->local_bytes) == 0);
    free(source);
    free(back);
    free(expected);
}

/* What the region of an origin looks like after its put. */
static void check_region(const shape_t *shape, int origin, unsigned seed)
{
    char *region = region_of(me, origin);
    char *expected = (char *)allocate(REGION_BYTES);
    char *source = (char *)allocate((size_t)shape->local_bytes);
    memset(expected, 0, REGION_BYTES);
    fill(source, seed, (size_t)shape->local_bytes);
    copy_patch(shape, expected + REGION_BYTES - shape->remote_bytes, shape->remote_strides, source,
               shape->local_strides);
    CHECK(memcmp(region, expected, REGION_BYTES) == 0);
    memset(region, 0, REGION_BYTES);
    free(expected);
    free(source);
}

static void patches_of_every_shape(void)
{
    unsigned state = 17;
    for (int which = 0; which < CASES; which++) {
        shape_t shape = draw_shape(&state, which % (LEVELS_MAX + 1));
        for (int target = 0; target < ranks; target++) {
            check_patch(&shape, target, (unsigned)(which * 1000 + me * 31 + target));
        }
        settle();
        for (int origin = 0; origin < ranks; origin++) {
            check_region(&shape, origin, (unsigned)(which * 1000 + origin * 31 + me));
        }
        armci_msg_barrier();
    }
}

/* Without levels nobody looks at the strides. */
static void one_run_needs_no_strides(void)
{
    int count[1] = {1234}, target = next_rank();
    char source[1234], back[1234];
    fill(source, (unsigned)me, sizeof source);
    CHECK_EQUAL(ARMCI_PutS(source, NULL, region_of(target, me), NULL, count, 0, target), 0);
    CHECK_EQUAL(ARMCI_GetS(region_of(target, me), NULL, back, NULL, count, 0, target), 0);
    CHECK(is_filled(back, (unsigned)me, sizeof back));
    settle();
}

/* A source with a stride of 0 is repeated, on the way out and on the way in. */
static void one_run_is_spread(void)
{
    int target = next_rank();
    int zero[2] = {0, 0}, apart[2] = {32, 32 * 5}, count[3] = {16, 5, 3};
    char source[16], all[32 * 15];
    char *place = region_of(target, me);
    memset(all, 0, sizeof all);
    CHECK_EQUAL(ARMCI_Put(all, place, sizeof all, target), 0);
    fill(source, (unsigned)me + 3, sizeof source);
    CHECK_EQUAL(ARMCI_PutS(source, zero, place, apart, count, 2, target), 0);
    CHECK_EQUAL(ARMCI_Get(place, all, sizeof all, target), 0);
    for (int run = 0; run < 15; run++) {
        CHECK(is_filled(all + 32 * run, (unsigned)me + 3, 16));
        CHECK(is_all(all + 32 * run + 16, 0, 16));
    }
    memset(all, 0x77, sizeof all);
    CHECK_EQUAL(ARMCI_GetS(place, zero, all, apart, count, 2, target), 0);
    for (int run = 0; run < 15; run++) {
        CHECK(is_filled(all + 32 * run, (unsigned)me + 3, 16));
        CHECK(is_all(all + 32 * run + 16, 0x77, 16));
    }
    settle();
}

/* Strides need not grow: here the second level runs between the runs of the first. */
static void levels_are_interleaved(void)
{
    int target = next_rank();
    int local[2] = {8, 32}, remote[2] = {64, 16}, count[3] = {8, 4, 4};
    char source[128], back[128];
    fill(source, (unsigned)me + 9, sizeof source);
    char *place = region_of(target, me);
    CHECK_EQUAL(ARMCI_PutS(source, local, place, remote, count, 2, target), 0);
    CHECK_EQUAL(ARMCI_GetS(place, remote, back, local, count, 2, target), 0);
    CHECK(memcmp(source, back, sizeof back) == 0);
    char run[8];
    for (int outer = 0; outer < 4; outer++) {
        for (int inner = 0; inner < 4; inner++) {
            CHECK_EQUAL(ARMCI_Get(place + 64 * inner + 16 * outer, run, 8, target), 0);
            CHECK(memcmp(run, source + 8 * inner + 32 * outer, 8) == 0);
        }
    }
    settle();
}

/* Rows of a matrix that is wide on one side and dense on the other, a megabyte in all. */
static void a_large_patch(void)
{
    enum { ROWS = 256, ROW_BYTES = 4096, WIDE_BYTES = ROW_BYTES + 512 };
    void *wide[RANKS_MAX];
    segment(wide, (size_t)ROWS * WIDE_BYTES);
    int target = next_rank(), dense[1] = {ROW_BYTES}, rows[1] = {WIDE_BYTES}, count[2] = {ROW_BYTES, ROWS};
    char *source = (char *)allocate((size_t)ROWS * ROW_BYTES), *back = (char *)allocate((size_t)ROWS * ROW_BYTES);
    fill(source, (unsigned)me, (size_t)ROWS * ROW_BYTES);
    CHECK_EQUAL(ARMCI_PutS(source, dense, at(wide[target], 512), rows, count, 1, target), 0);
    CHECK_EQUAL(ARMCI_GetS(at(wide[target], 512), rows, back, dense, count, 1, target), 0);
    CHECK(memcmp(source, back, (size_t)ROWS * ROW_BYTES) == 0);
    settle();
    for (int row = 0; row < ROWS; row++) {
        CHECK(is_all(at(wide[me], (long)row * WIDE_BYTES), 0, 512));
    }
    free(source);
    free(back);
    free_segment(wide);
}

#ifndef WITH_MPI
/* Packing and unpacking of a patch here. */
static void a_patch_is_packed(void)
{
    int strides[2] = {10, 100}, count[3] = {4, 5, 3};
    char patch[300], packed[60], other[300];
    fill(patch, 5, sizeof patch);
    armci_write_strided(patch, 2, strides, count, packed);
    long position = 0;
    for (int outer = 0; outer < 3; outer++) {
        for (int inner = 0; inner < 5; inner++) {
            CHECK(memcmp(packed + position, patch + 100 * outer + 10 * inner, 4) == 0);
            position += 4;
        }
    }
    memset(other, 0, sizeof other);
    armci_read_strided(other, 2, strides, count, packed);
    for (int index = 0; index < 300; index++) {
        int inside = index % 100 < 50 && index % 10 < 4;
        CHECK_EQUAL(other[index], inside ? patch[index] : 0);
    }
}
#endif

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(parts, (size_t)ranks * REGION_BYTES);
    patches_of_every_shape();
    one_run_needs_no_strides();
    one_run_is_spread();
    levels_are_interleaved();
    a_large_patch();
#ifndef WITH_MPI
    a_patch_is_packed();
#endif
    free_segment(parts);
    end("strided");
    return 0;
}
