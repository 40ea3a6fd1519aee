/* Transfers of one value: all types, blocking and not. */
#include "check.h"

#include <limits.h>

enum { PLACE_BYTES = 256 };

static int me, ranks;
static void *parts[RANKS_MAX];

static void blocking(int target)
{
    char *place = at(parts[target], (long)me * PLACE_BYTES);
    const int ints[] = {0, 1, -1, INT_MAX, INT_MIN};
    const long longs[] = {0, -1, LONG_MAX, LONG_MIN, 1L << 40};
    const float floats[] = {0.0f, 1.5f, -2.25f, 1e30f, -1e-30f};
    const double doubles[] = {0.0, 1.5, -2.25, 1e300, -1e-300};
    for (int which = 0; which < 5; which++) {
        /* What is behind a value stays. */
        CHECK_EQUAL(ARMCI_PutValueLong(-1, place, target), 0);
        CHECK_EQUAL(ARMCI_PutValueInt(ints[which], place, target), 0);
        CHECK_EQUAL(ARMCI_GetValueInt(place, target), ints[which]);
        CHECK_EQUAL(ARMCI_GetValueInt(place + 4, target), -1);
        CHECK_EQUAL(ARMCI_PutValueLong(longs[which], place + 8, target), 0);
        CHECK_EQUAL(ARMCI_GetValueLong(place + 8, target), longs[which]);
        CHECK_EQUAL(ARMCI_PutValueFloat(floats[which], place + 16, target), 0);
        CHECK(ARMCI_GetValueFloat(place + 16, target) == floats[which]);
        CHECK_EQUAL(ARMCI_PutValueDouble(doubles[which], place + 24, target), 0);
        CHECK(ARMCI_GetValueDouble(place + 24, target) == doubles[which]);
        /* At an odd address too. */
        CHECK_EQUAL(ARMCI_PutValueDouble(doubles[which], place + 33, target), 0);
        CHECK(ARMCI_GetValueDouble(place + 33, target) == doubles[which]);
        CHECK_EQUAL(ARMCI_GetValueLong(place + 8, target), longs[which]);
    }
}

/* The values are parameters, which are gone when the call returns: they must have been copied. */
static void nonblocking(int target)
{
    char *place = at(parts[target], (long)me * PLACE_BYTES);
    armci_hdl_t handles[4];
    for (int which = 0; which < 4; which++) {
        ARMCI_INIT_HANDLE(&handles[which]);
    }
    CHECK_EQUAL(ARMCI_NbPutValueInt(me + 1, place, target, &handles[0]), 0);
    CHECK_EQUAL(ARMCI_NbPutValueLong(me + 2L, place + 8, target, &handles[1]), 0);
    CHECK_EQUAL(ARMCI_NbPutValueFloat((float)me + 3, place + 16, target, &handles[2]), 0);
    CHECK_EQUAL(ARMCI_NbPutValueDouble(me + 4.0, place + 24, target, &handles[3]), 0);
    volatile char rubbish[512];
    for (int index = 0; index < 512; index++) {
        rubbish[index] = 0x5a;
    }
    CHECK_EQUAL(rubbish[511], 0x5a);
    for (int which = 0; which < 4; which++) {
        CHECK_EQUAL(ARMCI_Wait(&handles[which]), 0);
    }
    ARMCI_Fence(target);
    CHECK_EQUAL(ARMCI_GetValueInt(place, target), me + 1);
    CHECK_EQUAL(ARMCI_GetValueLong(place + 8, target), me + 2);
    CHECK(ARMCI_GetValueFloat(place + 16, target) == (float)me + 3);
    CHECK(ARMCI_GetValueDouble(place + 24, target) == me + 4.0);
    /* Many without handles. */
    for (int index = 0; index < 32; index++) {
        CHECK_EQUAL(ARMCI_NbPutValueLong(index * 11 + me, place + 8 * (index % 32), target, NULL), 0);
    }
    CHECK_EQUAL(ARMCI_WaitAll(), 0);
    ARMCI_Fence(target);
    for (int index = 0; index < 32; index++) {
        CHECK_EQUAL(ARMCI_GetValueLong(place + 8 * index, target), index * 11 + me);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(parts, (size_t)ranks * PLACE_BYTES);
    for (int target = 0; target < ranks; target++) {
        blocking(target);
        nonblocking(target);
    }
    free_segment(parts);
    end("value");
    return 0;
}
