/* Global procedure calls: functions that run at another process, answer, and make calls themselves. */
#include "check.h"

#include <gpc.h>

static int me, ranks;
static void *parts[RANKS_MAX];

/* Swaps an integer whose address is the header. */
static int swap(int to, int from, void *hdr, int hlen, void *data, int dlen, void *rhdr, int rhlen, int *rhsize,
                void *rdata, int rdlen, int *rdsize, int rtype)
{
    void *address;
    int *place, old;
    CHECK_EQUAL(hlen, (int)sizeof address);
    CHECK_EQUAL(dlen, (int)sizeof(int));
    CHECK(rhlen >= (int)sizeof(int) && rdlen >= (int)sizeof(int));
    CHECK_EQUAL(rtype, GPC_INIT);
    memcpy(&address, hdr, sizeof address);
    place = (int *)ARMCI_Gpc_translate(address, to, from);
    ARMCI_Gpc_lock(to);
    old = *place;
    memcpy(place, data, sizeof *place);
    ARMCI_Gpc_unlock(to);
    memcpy(rdata, &old, sizeof old);
    memcpy(rhdr, &from, sizeof from);
    *rhsize = sizeof from;
    *rdsize = sizeof old;
    return GPC_DONE;
}

/* Answers with the data turned round. Says only when asked again that it is done. */
static int turn(int to, int from, void *hdr, int hlen, void *data, int dlen, void *rhdr, int rhlen, int *rhsize,
                void *rdata, int rdlen, int *rdsize, int rtype)
{
    (void)hdr;
    (void)rhdr;
    CHECK_EQUAL(hlen, 0);
    CHECK_EQUAL(rhlen, 0);
    CHECK(dlen <= rdlen);
    CHECK_EQUAL(to, armci_msg_me());
    CHECK(from >= 0 && from < armci_msg_nproc());
    if (rtype == GPC_INIT) {
        return GPC_PENDING;
    }
    CHECK_EQUAL(rtype, GPC_WAIT);
    for (int index = 0; index < dlen; index++) {
        ((char *)rdata)[index] = ((char *)data)[dlen - 1 - index];
    }
    *rhsize = 0;
    *rdsize = dlen;
    return GPC_DONE;
}

/* Adds to a counter at a third process, and answers with what was there. */
static int count_elsewhere(int to, int from, void *hdr, int hlen, void *data, int dlen, void *rhdr, int rhlen,
                           int *rhsize, void *rdata, int rdlen, int *rdsize, int rtype)
{
    long before = -1;
    int third = (to + 1) % armci_msg_nproc();
    (void)data;
    (void)rhdr;
    (void)from;
    CHECK_EQUAL(hlen, (int)sizeof(int));
    CHECK_EQUAL(dlen, 0);
    CHECK_EQUAL(rtype, GPC_INIT);
    int added;
    memcpy(&added, hdr, sizeof added);
    CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &before, (long *)parts[third] + 5, added, third), 0);
    CHECK(rdlen >= (int)sizeof before);
    memcpy(rdata, &before, sizeof before);
    *rhsize = rhlen;
    *rdsize = sizeof before;
    return GPC_DONE;
}

static void swaps(int function)
{
    for (int time = 0; time < 30; time++) {
        int target = (me + time) % ranks, value = me + 1, old = -1, answered_by = -1;
        /* The place of a pair has been 0, and gets each other value in turn. */
        void *address = (int *)parts[target] + 20 + me;
        CHECK_EQUAL(ARMCI_PutValueInt(time, address, target), 0);
        ARMCI_Fence(target);
        CHECK_EQUAL(ARMCI_Gpc_exec(function, target, &address, sizeof address, &value, sizeof value, &answered_by,
                                   sizeof answered_by, &old, sizeof old, NULL),
                    0);
        CHECK_EQUAL(old, time);
        CHECK_EQUAL(answered_by, me);
        CHECK_EQUAL(ARMCI_GetValueInt(address, target), me + 1);
    }
    armci_msg_barrier();
}

static void answers_of_every_length(int function)
{
    const int lengths[] = {1, 100, 5000, 200000};
    for (int which = 0; which < 4; which++) {
        for (int target = 0; target < ranks; target++) {
            int length = lengths[which];
            char *out = (char *)allocate((size_t)length), *in = (char *)allocate((size_t)length + 8);
            gpc_hdl_t handle;
            fill(out, (unsigned)(me + which), (size_t)length);
            memset(in, 0x33, (size_t)length + 8);
            ARMCI_Gpc_init_handle(&handle);
            CHECK_EQUAL(ARMCI_Gpc_exec(function, target, NULL, 0, out, length, NULL, 0, in, length + 8, &handle), 0);
            ARMCI_Gpc_wait(&handle);
            /* To wait again changes nothing. */
            ARMCI_Gpc_wait(&handle);
            for (int index = 0; index < length; index++) {
                CHECK_EQUAL(in[index], out[length - 1 - index]);
            }
            CHECK(is_all(in + length, 0x33, 8));
            free(out);
            free(in);
        }
    }
    armci_msg_barrier();
}

/* Several calls are open at once. */
static void calls_overlap(int function)
{
    enum { CALLS = 12 };
    gpc_hdl_t handles[CALLS];
    char out[CALLS][50], in[CALLS][50];
    for (int which = 0; which < CALLS; which++) {
        fill(out[which], (unsigned)which, 50);
        ARMCI_Gpc_init_handle(&handles[which]);
        CHECK_EQUAL(ARMCI_Gpc_exec(function, which % ranks, NULL, 0, out[which], 50, NULL, 0, in[which], 50,
                                   &handles[which]),
                    0);
    }
    for (int which = CALLS - 1; which >= 0; which--) {
        ARMCI_Gpc_wait(&handles[which]);
        for (int index = 0; index < 50; index++) {
            CHECK_EQUAL(in[which][index], out[which][49 - index]);
        }
    }
    armci_msg_barrier();
}

static void functions_make_calls(int function)
{
    memset(parts[me], 0, 256);
    armci_msg_barrier();
    for (int time = 0; time < 20; time++) {
        int added = 1 + me;
        long before = -1;
        CHECK_EQUAL(ARMCI_Gpc_exec(function, (me + time) % ranks, &added, sizeof added, NULL, 0, NULL, 0, &before,
                                   sizeof before, NULL),
                    0);
        CHECK(before >= 0);
    }
    armci_msg_barrier();
    long sum = ((long *)parts[me])[5];
    armci_msg_lgop(&sum, 1, OPERATION("+"));
    CHECK_EQUAL(sum, 20L * ranks * (ranks + 1) / 2);
    armci_msg_barrier();
}

/* The mutex of a process is one for functions and programs alike. */
static void the_mutex_excludes(void)
{
    long *counter = (long *)parts[0] + 6;
    for (int time = 0; time < 20; time++) {
        if (time % 2 == 0) {
            ARMCI_Gpc_lock(0);
        } else {
            while (!ARMCI_Gpc_trylock(0)) {
            }
        }
        long value = ARMCI_GetValueLong(counter, 0);
        CHECK_EQUAL(ARMCI_PutValueLong(value + 1, counter, 0), 0);
        ARMCI_Fence(0);
        ARMCI_Gpc_unlock(0);
    }
    armci_msg_barrier();
    CHECK_EQUAL(ARMCI_GetValueLong(counter, 0), 20L * ranks);
    armci_msg_barrier();
}

static void wrong_arguments_are_refused(int function)
{
    char byte = 0;
    CHECK(ARMCI_Gpc_exec(function, -1, &byte, 1, &byte, 1, &byte, 1, &byte, 1, NULL) < 0);
    CHECK(ARMCI_Gpc_exec(function, ranks, &byte, 1, &byte, 1, &byte, 1, &byte, 1, NULL) < 0);
    CHECK(ARMCI_Gpc_exec(function - 20, 0, &byte, 1, &byte, 1, &byte, 1, &byte, 1, NULL) < 0);
    CHECK(ARMCI_Gpc_exec(function, 0, &byte, -1, &byte, 1, &byte, 1, &byte, 1, NULL) < 0);
    CHECK(ARMCI_Gpc_exec(function, 0, NULL, 1, &byte, 1, &byte, 1, &byte, 1, NULL) < 0);
    CHECK(ARMCI_Gpc_exec(function, 0, &byte, 1, &byte, ARMCI_Get_gpc_dlen(), &byte, 1, &byte, 1, NULL) < 0);
    CHECK(ARMCI_Gpc_exec(function, 0, &byte, ARMCI_Get_gpc_hlen(), &byte, 1, &byte, 1, &byte, 1, NULL) < 0);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(parts, 256);
    CHECK(ARMCI_Get_gpc_hlen() >= 1024 && ARMCI_Get_gpc_dlen() >= 1 << 18);
    int swapping = ARMCI_Gpc_register(swap), turning = ARMCI_Gpc_register(turn);
    int counting = ARMCI_Gpc_register(count_elsewhere);
    CHECK(swapping != turning && turning != counting && swapping != counting);
    swaps(swapping);
    answers_of_every_length(turning);
    calls_overlap(turning);
    functions_make_calls(counting);
    the_mutex_excludes();
    wrong_arguments_are_refused(turning);
    armci_msg_barrier();
    ARMCI_Gpc_release(turning);
    int again = ARMCI_Gpc_register(turn);
    calls_overlap(again);
    ARMCI_Gpc_release(again);
    ARMCI_Gpc_release(swapping);
    ARMCI_Gpc_release(counting);
    free_segment(parts);
    end("gpc");
    return 0;
}
