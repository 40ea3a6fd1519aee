/* Reductions: every operation of every type, in every scope, by every call. */
#include "check.h"

enum { LONGEST = 3000 };

static int me, ranks;

typedef enum { INT, LONG, LONG_LONG, FLOAT, DOUBLE, TYPES } type_t;

static const int codes[TYPES] = {ARMCI_INT, ARMCI_LONG, ARMCI_LONG_LONG, ARMCI_FLOAT, ARMCI_DOUBLE};
static const size_t sizes[TYPES] = {sizeof(int), sizeof(long), sizeof(long long), sizeof(float), sizeof(double)};

/* A buffer of any type. */
static long long buffer[LONGEST];

static void set(type_t type, int index, long value)
{
    void *place = at(buffer, (long)index * (long)sizes[type]);
    int as_int = (int)value;
    long as_long = value;
    long long as_long_long = value;
    float as_float = (float)value;
    double as_double = (double)value;
    const void *from[TYPES];
    from[INT] = &as_int;
    from[LONG] = &as_long;
    from[LONG_LONG] = &as_long_long;
    from[FLOAT] = &as_float;
    from[DOUBLE] = &as_double;
    memcpy(place, from[type], sizes[type]);
}

static long get(type_t type, int index)
{
    const void *place = at(buffer, (long)index * (long)sizes[type]);
    int as_int;
    long as_long;
    long long as_long_long;
    float as_float;
    double as_double;
    switch (type) {
    case INT:
        memcpy(&as_int, place, sizeof as_int);
        return as_int;
    case LONG:
        memcpy(&as_long, place, sizeof as_long);
        return as_long;
    case LONG_LONG:
        memcpy(&as_long_long, place, sizeof as_long_long);
        return (long)as_long_long;
    case FLOAT:
        memcpy(&as_float, place, sizeof as_float);
        return (long)as_float;
    default:
        memcpy(&as_double, place, sizeof as_double);
        return (long)as_double;
    }
}

/* What process `rank` gives. Small, so that products are exact in every type. */
static long given(const char *name, int rank, int index)
{
    if (strcmp(name, "*") == 0) {
        return (rank + index) % 3 - 1 ? 2 : -1;
    }
    return (rank * 37 + index * 11) % 101 - 50;
}

static long combine(const char *name, long a, long b)
{
    long absolute_a = a < 0 ? -a : a, absolute_b = b < 0 ? -b : b;
    if (strcmp(name, "+") == 0) {
        return a + b;
    }
    if (strcmp(name, "*") == 0) {
        return a * b;
    }
    if (strcmp(name, "max") == 0) {
        return a > b ? a : b;
    }
    if (strcmp(name, "min") == 0) {
        return a < b ? a : b;
    }
    if (strcmp(name, "absmax") == 0) {
        return absolute_a > absolute_b ? absolute_a : absolute_b;
    }
    if (strcmp(name, "absmin") == 0) {
        return absolute_a < absolute_b ? absolute_a : absolute_b;
    }
    if (strcmp(name, "or") == 0 || strcmp(name, "|") == 0 || strcmp(name, "bor") == 0) {
        return a | b;
    }
    if (strcmp(name, "&") == 0 || strcmp(name, "band") == 0) {
        return a & b;
    }
    if (strcmp(name, "&&") == 0 || strcmp(name, "land") == 0) {
        return a && b;
    }
    CHECK(strcmp(name, "||") == 0 || strcmp(name, "lor") == 0);
    return a || b;
}

/* What comes out of the ranks in a list. One alone still loses its sign, or becomes a truth value. */
static long expected(const char *name, const int *list, int members, int index)
{
    long result = given(name, list[0], index);
    if (strncmp(name, "abs", 3) == 0) {
        result = result < 0 ? -result : result;
    } else if (strcmp(name, "&&") == 0 || strcmp(name, "land") == 0 || strcmp(name, "||") == 0 ||
               strcmp(name, "lor") == 0) {
        result = result != 0;
    }
    for (int place = 1; place < members; place++) {
        result = combine(name, result, given(name, list[place], index));
    }
    return result;
}

static void give(type_t type, const char *name, int length)
{
    for (int index = 0; index < length; index++) {
        set(type, index, given(name, me, index));
    }
}

static void expect(type_t type, const char *name, int length, const int *list, int members)
{
    for (int index = 0; index < length; index++) {
        CHECK_EQUAL(get(type, index), expected(name, list, members, index));
    }
}

static void expect_own(type_t type, const char *name, int length)
{
    for (int index = 0; index < length; index++) {
        CHECK_EQUAL(get(type, index), given(name, me, index));
    }
}

/* The call of a type that has a name of its own: for all, for this node, for a group. */
typedef enum { EVERYBODY, THIS_NODE, A_GROUP } who_t;

static void typed(type_t type, who_t who, int length, const char *name, ARMCI_Group *group)
{
    char *operation = OPERATION(name);
    void *x = buffer;
    switch (type) {
    case INT:
        if (who == EVERYBODY) {
            armci_msg_igop((int *)x, length, operation);
#ifndef WITH_MPI
        } else if (who == THIS_NODE) {
            armci_msg_clus_igop((int *)x, length, operation);
#endif
        } else {
            armci_msg_group_igop((int *)x, length, operation, group);
        }
        break;
    case LONG:
        if (who == EVERYBODY) {
            armci_msg_lgop((long *)x, length, operation);
#ifndef WITH_MPI
        } else if (who == THIS_NODE) {
            armci_msg_clus_lgop((long *)x, length, operation);
#endif
        } else {
            armci_msg_group_lgop((long *)x, length, operation, group);
        }
        break;
    case LONG_LONG:
        if (who == EVERYBODY) {
            armci_msg_llgop((long long *)x, length, operation);
#ifndef WITH_MPI
        } else if (who == THIS_NODE) {
            armci_msg_clus_llgop((long long *)x, length, operation);
#endif
        } else {
            armci_msg_group_llgop((long long *)x, length, operation, group);
        }
        break;
    case FLOAT:
        if (who == EVERYBODY) {
            armci_msg_fgop((float *)x, length, operation);
#ifndef WITH_MPI
        } else if (who == THIS_NODE) {
            armci_msg_clus_fgop((float *)x, length, operation);
#endif
        } else {
            armci_msg_group_fgop((float *)x, length, operation, group);
        }
        break;
    default:
        if (who == EVERYBODY) {
            armci_msg_dgop((double *)x, length, operation);
#ifndef WITH_MPI
        } else if (who == THIS_NODE) {
            armci_msg_clus_dgop((double *)x, length, operation);
#endif
        } else {
            armci_msg_group_dgop((double *)x, length, operation, group);
        }
        break;
    }
}

static const char *const for_all[] = {"+", "*", "max", "min", "absmax", "absmin"};
#ifdef WITH_MPI
static const char *const for_integers[] = {"or"};
#else
static const char *const for_integers[] = {"or", "&&", "land", "||", "lor", "&", "band", "|", "bor"};
#endif

typedef struct {
    int members;
    int list[RANKS_MAX];
    int holds_me;
} list_t;

/* Who takes part in a scope, as seen from here. */
static list_t list_of(int scope)
{
    list_t list;
    memset(&list, 0, sizeof list);
    int node = armci_domain_my_id(ARMCI_DOMAIN_SMP);
    for (int rank = 0; rank < ranks; rank++) {
        int of_rank = armci_domain_id(ARMCI_DOMAIN_SMP, rank);
        int first = armci_domain_glob_proc_id(ARMCI_DOMAIN_SMP, of_rank, 0);
        int takes_part = scope == SCOPE_ALL || (scope == SCOPE_NODE && of_rank == node) ||
                         (scope == SCOPE_MASTERS && first == rank);
        if (takes_part) {
            list.list[list.members++] = rank;
            list.holds_me |= rank == me;
        }
    }
    return list;
}

static void by_scope(type_t type, const char *name, int scope, int length)
{
    list_t list = list_of(scope);
    char *operation = OPERATION(name);
    ARMCI_Group world;
    ARMCI_Group_get_world(&world);

    give(type, name, length);
    armci_msg_gop_scope(scope, buffer, length, operation, codes[type]);
    if (list.holds_me) {
        expect(type, name, length, list.list, list.members);
    } else {
        expect_own(type, name, length);
    }
#ifndef WITH_MPI
    give(type, name, length);
    armci_msg_group_gop_scope(scope, buffer, length, operation, codes[type], &world);
    if (list.holds_me) {
        expect(type, name, length, list.list, list.members);
    }

    /* Only the first one gets the result. */
    give(type, name, length);
    armci_msg_reduce_scope(scope, buffer, length, operation, codes[type]);
    if (list.list[0] == me) {
        expect(type, name, length, list.list, list.members);
    }
#endif
}

static void operation_of_type(type_t type, const char *name)
{
    ARMCI_Group world;
    ARMCI_Group_get_world(&world);
    list_t all = list_of(SCOPE_ALL), node = list_of(SCOPE_NODE);
    const int lengths[] = {1, 2, 17, LONGEST};
    for (int which = 0; which < 4; which++) {
        int length = lengths[which];
        give(type, name, length);
        typed(type, EVERYBODY, length, name, NULL);
        expect(type, name, length, all.list, ranks);
        give(type, name, length);
        typed(type, A_GROUP, length, name, &world);
        expect(type, name, length, all.list, ranks);
        give(type, name, length);
        armci_msg_reduce(buffer, length, OPERATION(name), codes[type]);
        if (me == 0) {
            expect(type, name, length, all.list, ranks);
        }
#ifndef WITH_MPI
        give(type, name, length);
        typed(type, THIS_NODE, length, name, NULL);
        expect(type, name, length, node.list, node.members);
#endif
    }
    (void)node;
    by_scope(type, name, SCOPE_ALL, 20);
#ifndef WITH_MPI
    by_scope(type, name, SCOPE_NODE, 20);
    by_scope(type, name, SCOPE_MASTERS, 20);
#endif
}

/* Numbers that do not fit into smaller types stay whole. */
static void wide_numbers(void)
{
    long wide = 1L << 40;
    armci_msg_lgop(&wide, 1, OPERATION("+"));
    CHECK_EQUAL(wide, (1L << 40) * ranks);
    long long widest = (1LL << 60) + me;
    armci_msg_llgop(&widest, 1, OPERATION("max"));
    CHECK_EQUAL(widest, (1LL << 60) + ranks - 1);
    double fine = 0.5 + me;
    armci_msg_dgop(&fine, 1, OPERATION("min"));
    CHECK(fine == 0.5);
}

/* One reduction after the other, of numbers that many processes have changed meanwhile. */
static void many_in_a_row(void)
{
    for (int round = 0; round < 300; round++) {
        int value = me + round;
        armci_msg_igop(&value, 1, OPERATION("+"));
        CHECK_EQUAL(value, ranks * round + ranks * (ranks - 1) / 2);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    for (int type = 0; type < TYPES; type++) {
        for (size_t which = 0; which < sizeof for_all / sizeof for_all[0]; which++) {
            operation_of_type((type_t)type, for_all[which]);
        }
        for (size_t which = 0; type <= LONG_LONG && which < sizeof for_integers / sizeof for_integers[0]; which++) {
            operation_of_type((type_t)type, for_integers[which]);
        }
    }
    wide_numbers();
    many_in_a_row();
    end("reductions");
    return 0;
}
