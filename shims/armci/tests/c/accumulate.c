/* Accumulate of all types in all forms. All numbers are small integers, so every sum is exact. */
#include "check.h"

enum { ELEMENTS = 300, ROUNDS = 20 };

typedef struct {
    const char *name;
    int code;
    int bytes;
    int numbers; /* In an element: 2 if it is complex. */
    int is_integer;
    int number_bytes;
} type_t;

static const type_t types[] = {
    {"int", ARMCI_ACC_INT, 4, 1, 1, 4},   {"long", ARMCI_ACC_LNG, 8, 1, 1, 8},
    {"float", ARMCI_ACC_FLT, 4, 1, 0, 4}, {"double", ARMCI_ACC_DBL, 8, 1, 0, 8},
    {"complex", ARMCI_ACC_CPL, 8, 2, 0, 4}, {"double complex", ARMCI_ACC_DCP, 16, 2, 0, 8},
};
enum { TYPES = sizeof types / sizeof types[0] };

static int me, ranks;
static void *parts[RANKS_MAX];

/* Number `index` of an array of any type. */
static double number_at(const type_t *type, const void *array, int index)
{
    if (type->is_integer) {
        return type->number_bytes == 4 ? (double)((const int *)array)[index] : (double)((const long *)array)[index];
    }
    return type->number_bytes == 4 ? (double)((const float *)array)[index] : ((const double *)array)[index];
}

static void set_number(const type_t *type, void *array, int index, double value)
{
    if (type->is_integer && type->number_bytes == 4) {
        ((int *)array)[index] = (int)value;
    } else if (type->is_integer) {
        ((long *)array)[index] = (long)value;
    } else if (type->number_bytes == 4) {
        ((float *)array)[index] = (float)value;
    } else {
        ((double *)array)[index] = value;
    }
}

/* What scale times element `index` is, as a real and an imaginary part. */
static void scaled(const type_t *type, const void *scale, const void *array, int index, double *parts_of)
{
    if (type->numbers == 1) {
        parts_of[0] = number_at(type, scale, 0) * number_at(type, array, index);
        parts_of[1] = 0;
        return;
    }
    double a = number_at(type, scale, 0), b = number_at(type, scale, 1);
    double c = number_at(type, array, 2 * index), d = number_at(type, array, 2 * index + 1);
    parts_of[0] = a * c - b * d;
    parts_of[1] = a * d + b * c;
}

static void fill_numbers(const type_t *type, void *array, int elements, int seed)
{
    for (int index = 0; index < elements * type->numbers; index++) {
        set_number(type, array, index, (index * 7 + seed * 13) % 41 - 20);
    }
}

static void clear(void)
{
    settle();
    memset(parts[me], 0, ELEMENTS * 16);
    armci_msg_barrier();
}

/* Everybody adds the same list ROUNDS times to everybody, in one of three forms. */
enum { CONTIGUOUS, STRIDED, VECTOR, NONBLOCKING, FORMS };

static void add(const type_t *type, int form, void *scale, char *source, char *place, int target)
{
    int half = ELEMENTS / 2 * type->bytes;
    if (form == CONTIGUOUS) {
        CHECK_EQUAL(ARMCI_Acc(type->code, scale, source, place, ELEMENTS * type->bytes, target), 0);
    } else if (form == STRIDED) {
        /* As 10 rows of a tenth. */
        int row = ELEMENTS / 10 * type->bytes, strides[1], count[2];
        strides[0] = row;
        count[0] = row;
        count[1] = 10;
        CHECK_EQUAL(ARMCI_AccS(type->code, scale, source, strides, place, strides, count, 1, target), 0);
    } else if (form == VECTOR) {
        void *from[2], *to[2];
        armci_giov_t list;
        from[0] = source + half;
        to[0] = place + half;
        from[1] = source;
        to[1] = place;
        list.src_ptr_array = from;
        list.dst_ptr_array = to;
        list.ptr_array_len = 2;
        list.bytes = half;
        CHECK_EQUAL(ARMCI_AccV(type->code, scale, &list, 1, target), 0);
    } else {
        int strides[1], count[2];
        armci_hdl_t handle;
        ARMCI_INIT_HANDLE(&handle);
        strides[0] = half;
        count[0] = half;
        count[1] = 2;
        CHECK_EQUAL(ARMCI_NbAccS(type->code, scale, source, strides, place, strides, count, 1, target, &handle), 0);
        CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    }
}

static void all_add_to_all(const type_t *type, int form)
{
    double scale[2];
    char *source = (char *)allocate(ELEMENTS * 16), *other = (char *)allocate(ELEMENTS * 16);
    set_number(type, scale, 0, 3);
    if (type->numbers == 2) {
        set_number(type, scale, 1, -2);
    }
    fill_numbers(type, source, ELEMENTS, me);
    clear();
    for (int round = 0; round < ROUNDS; round++) {
        for (int step = 0; step < ranks; step++) {
            int target = (me + step) % ranks;
            add(type, form, scale, source, (char *)parts[target], target);
        }
    }
    settle();
    for (int index = 0; index < ELEMENTS; index++) {
        double expected[2] = {0, 0}, once[2];
        for (int origin = 0; origin < ranks; origin++) {
            fill_numbers(type, other, index + 1, origin);
            scaled(type, scale, other, index, once);
            expected[0] += ROUNDS * once[0];
            expected[1] += ROUNDS * once[1];
        }
        CHECK_EQUAL(number_at(type, parts[me], index * type->numbers), expected[0]);
        if (type->numbers == 2) {
            CHECK_EQUAL(number_at(type, parts[me], index * 2 + 1), expected[1]);
        }
    }
    free(source);
    free(other);
}

/* A place that is listed several times is added to as often. */
static void duplicates_are_all_added(const type_t *type)
{
    enum { COUNT = 60, DISTINCT = 7 };
    double scale[2], source[2 * COUNT];
    void *from[COUNT], *to[COUNT];
    armci_giov_t list;
    int target = next_rank();
    set_number(type, scale, 0, 1);
    if (type->numbers == 2) {
        set_number(type, scale, 1, 0);
    }
    clear();
    for (int index = 0; index < COUNT * type->numbers; index++) {
        set_number(type, source, index, index + 1);
    }
    for (int index = 0; index < COUNT; index++) {
        from[index] = at(source, (long)index * type->bytes);
        to[index] = at(parts[target], (long)(index % DISTINCT) * type->bytes);
    }
    list.src_ptr_array = from;
    list.dst_ptr_array = to;
    list.ptr_array_len = COUNT;
    list.bytes = type->bytes;
    CHECK_EQUAL(ARMCI_AccV(type->code, scale, &list, 1, target), 0);
    settle();
    for (int place = 0; place < DISTINCT; place++) {
        for (int part = 0; part < type->numbers; part++) {
            double expected = 0;
            for (int index = place; index < COUNT; index += DISTINCT) {
                expected += index * type->numbers + part + 1;
            }
            CHECK_EQUAL(number_at(type, parts[me], place * type->numbers + part), expected);
        }
    }
}

static void scales_of_every_kind(const type_t *type)
{
    const int scales[] = {0, 1, -1, 5};
    double scale[2], source[8];
    int target = next_rank();
    for (int which = 0; which < 4; which++) {
        clear();
        set_number(type, scale, 0, scales[which]);
        if (type->numbers == 2) {
            set_number(type, scale, 1, 0);
        }
        for (int index = 0; index < 4 * type->numbers; index++) {
            set_number(type, source, index, 10 + index);
            set_number(type, parts[me], index, 1000);
        }
        armci_msg_barrier();
        CHECK_EQUAL(ARMCI_Acc(type->code, scale, source, parts[target], 4 * type->bytes, target), 0);
        settle();
        for (int index = 0; index < 4 * type->numbers; index++) {
            CHECK_EQUAL(number_at(type, parts[me], index), 1000 + scales[which] * (10 + index));
        }
        /* The target may be this process. */
        CHECK_EQUAL(ARMCI_Acc(type->code, scale, source, parts[me], 4 * type->bytes, me), 0);
        ARMCI_Fence(me);
        CHECK_EQUAL(number_at(type, parts[me], 0), 1000 + 2 * scales[which] * 10);
    }
}

/* Many elements at once, so that they travel in parts. */
static void a_large_sum(void)
{
    enum { COUNT = 200000 };
    void *large[RANKS_MAX];
    segment(large, COUNT * sizeof(double));
    double *source = (double *)allocate(COUNT * sizeof(double)), scale = 2;
    for (int index = 0; index < COUNT; index++) {
        source[index] = index % 1000 + me;
    }
    CHECK_EQUAL(ARMCI_Acc(ARMCI_ACC_DBL, &scale, source, large[0], COUNT * (int)sizeof(double), 0), 0);
    settle();
    if (me == 0) {
        for (int index = 0; index < COUNT; index++) {
            CHECK_EQUAL(((double *)large[0])[index], 2 * ranks * (index % 1000) + ranks * (ranks - 1));
        }
    }
    free(source);
    free_segment(large);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(parts, ELEMENTS * 16);
    for (int which = 0; which < TYPES; which++) {
        for (int form = 0; form < FORMS; form++) {
            all_add_to_all(&types[which], form);
        }
        duplicates_are_all_added(&types[which]);
        scales_of_every_kind(&types[which]);
    }
    a_large_sum();
    free_segment(parts);
    end("accumulate");
    return 0;
}
