/* Many small transfers that gather under one handle. */
#include "check.h"

enum { COUNT = 500 };

static int me, ranks;
static void *parts[RANKS_MAX];

static void puts_and_gets(int target)
{
    armci_hdl_t handle;
    double out[COUNT], in[COUNT];
    double *there = (double *)parts[target] + me * COUNT;
    for (int index = 0; index < COUNT; index++) {
        out[index] = me * 1000 + target * 100000 + index;
        in[index] = -1;
    }
    ARMCI_INIT_HANDLE(&handle);
    ARMCI_SET_AGGREGATE_HANDLE(&handle);
    for (int index = 0; index < COUNT; index++) {
        CHECK_EQUAL(ARMCI_NbPut(&out[index], &there[index], sizeof(double), target, &handle), 0);
    }
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    ARMCI_UNSET_AGGREGATE_HANDLE(&handle);
    ARMCI_Fence(target);

    ARMCI_INIT_HANDLE(&handle);
    ARMCI_SET_AGGREGATE_HANDLE(&handle);
    for (int index = COUNT - 1; index >= 0; index--) {
        CHECK_EQUAL(ARMCI_NbGet(&there[index], &in[index], sizeof(double), target, &handle), 0);
    }
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    ARMCI_UNSET_AGGREGATE_HANDLE(&handle);
    CHECK(memcmp(in, out, sizeof in) == 0);
}

/* Patches, lists and single values under one handle; what was put together is still there after the end of gathering. */
static void all_shapes(int target)
{
    armci_hdl_t handle;
    static double out[60], in[60];
    double *there = (double *)parts[target] + me * COUNT;
    int dense[1] = {8}, apart[1] = {16}, count[2] = {8, 10};
    void *from[10], *to[10];
    armci_giov_t list;
    for (int index = 0; index < 60; index++) {
        out[index] = me * 7 + index;
    }
    for (int index = 0; index < 10; index++) {
        from[index] = &out[20 + index];
        to[index] = &there[100 + 3 * index];
    }
    list.src_ptr_array = from;
    list.dst_ptr_array = to;
    list.ptr_array_len = 10;
    list.bytes = 8;
    ARMCI_INIT_HANDLE(&handle);
    ARMCI_SET_AGGREGATE_HANDLE(&handle);
    CHECK_EQUAL(ARMCI_NbPutS(out, dense, there, apart, count, 1, target, &handle), 0);
    CHECK_EQUAL(ARMCI_NbPutV(&list, 1, target, &handle), 0);
    CHECK_EQUAL(ARMCI_NbPutValueDouble(3.5, &there[200], target, &handle), 0);
    ARMCI_UNSET_AGGREGATE_HANDLE(&handle);
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    ARMCI_Fence(target);
    CHECK_EQUAL(ARMCI_GetS(there, apart, in, dense, count, 1, target), 0);
    CHECK(memcmp(in, out, 80) == 0);
    for (int index = 0; index < 10; index++) {
        CHECK(ARMCI_GetValueDouble(&there[100 + 3 * index], target) == out[20 + index]);
    }
    CHECK(ARMCI_GetValueDouble(&there[200], target) == 3.5);
}

/* Two handles gather at the same time, one for each of two processes. */
static void two_at_a_time(void)
{
    armci_hdl_t handles[2];
    int targets[2], values[2][20];
    targets[0] = me;
    targets[1] = next_rank();
    for (int which = 0; which < 2; which++) {
        ARMCI_INIT_HANDLE(&handles[which]);
        ARMCI_SET_AGGREGATE_HANDLE(&handles[which]);
    }
    for (int index = 0; index < 20; index++) {
        for (int which = 0; which < 2; which++) {
            values[which][index] = me * 100 + which * 50 + index;
            int *there = (int *)(void *)((double *)parts[targets[which]] + me * COUNT) + which * 20 + index;
            CHECK_EQUAL(ARMCI_NbPut(&values[which][index], there, sizeof(int), targets[which], &handles[which]), 0);
        }
    }
    for (int which = 0; which < 2; which++) {
        CHECK_EQUAL(ARMCI_Wait(&handles[which]), 0);
        ARMCI_UNSET_AGGREGATE_HANDLE(&handles[which]);
    }
    settle();
    int *mine = (int *)(void *)((double *)parts[me] + me * COUNT);
    int *from_previous = (int *)(void *)((double *)parts[me] + previous_rank() * COUNT);
    for (int index = 0; index < 20; index++) {
        CHECK_EQUAL(mine[index], me * 100 + index);
        CHECK_EQUAL(from_previous[20 + index], previous_rank() * 100 + 50 + index);
    }
    armci_msg_barrier();
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(parts, (size_t)ranks * COUNT * sizeof(double));
    for (int target = 0; target < ranks; target++) {
        puts_and_gets(target);
        all_shapes(target);
    }
    settle();
    two_at_a_time();
    free_segment(parts);
    end("aggregate");
    return 0;
}
