/* Wrong arguments give the codes of the classic library, and nothing is transferred. */
#include "check.h"

static int me, ranks;
static void *parts[RANKS_MAX];
static char memory[256];
static void *there;

static void contiguous(int proc)
{
    double one = 1;
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    CHECK_EQUAL(ARMCI_Put(NULL, there, 8, proc), FAIL);
    CHECK_EQUAL(ARMCI_Put(memory, NULL, 8, proc), FAIL);
    CHECK_EQUAL(ARMCI_Put(memory, there, -1, proc), FAIL3);
    CHECK_EQUAL(ARMCI_Put(memory, there, 8, -1), FAIL5);
    CHECK_EQUAL(ARMCI_Put(memory, there, 8, ranks), FAIL5);
    CHECK_EQUAL(ARMCI_Get(there, NULL, 8, proc), FAIL);
    CHECK_EQUAL(ARMCI_Get(NULL, memory, 8, proc), FAIL);
    CHECK_EQUAL(ARMCI_Get(there, memory, -5, proc), FAIL3);
    CHECK_EQUAL(ARMCI_Get(there, memory, 8, ranks + 5), FAIL5);
    CHECK_EQUAL(ARMCI_Acc(ARMCI_ACC_DBL, &one, NULL, there, 8, proc), FAIL);
    CHECK_EQUAL(ARMCI_Acc(ARMCI_ACC_DBL, NULL, memory, there, 8, proc), FAIL);
    CHECK_EQUAL(ARMCI_Acc(ARMCI_ACC_DBL, &one, memory, there, -8, proc), FAIL3);
    CHECK_EQUAL(ARMCI_Acc(ARMCI_ACC_DBL, &one, memory, there, 8, -1), FAIL5);
    CHECK_EQUAL(ARMCI_NbPut(NULL, there, 8, proc, &handle), FAIL);
    CHECK_EQUAL(ARMCI_NbGet(there, NULL, 8, proc, NULL), FAIL);
    CHECK_EQUAL(ARMCI_NbPut(memory, there, -1, proc, &handle), FAIL3);
    CHECK_EQUAL(ARMCI_NbGet(there, memory, 8, ranks, &handle), FAIL5);
    /* After an error a handle is as before. */
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    CHECK_EQUAL(ARMCI_Test(&handle), 0);
    CHECK_EQUAL(ARMCI_PutValueInt(5, NULL, proc), FAIL);
    CHECK_EQUAL(ARMCI_PutValueLong(5, there, ranks), FAIL5);
    CHECK_EQUAL(ARMCI_Put_flag(memory, there, 8, NULL, 1, proc) < 0, 1);
    CHECK_EQUAL(ARMCI_WaitProc(-1), FAIL5);
    CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, NULL, there, 1, proc), FAIL);
    CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, memory, NULL, 1, proc), FAIL);
    CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, memory, there, 1, ranks), FAIL5);
}

static void strided(int proc)
{
    int strides[9] = {8, 8, 8, 8, 8, 8, 8, 8, 8}, count[10] = {8, 1, 1, 1, 1, 1, 1, 1, 1, 1}, wrong[2] = {8, -1}, none = 0;
    double one = 1;
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    CHECK_EQUAL(ARMCI_PutS(NULL, strides, there, strides, count, 1, proc), FAIL);
    CHECK_EQUAL(ARMCI_PutS(memory, strides, NULL, strides, count, 1, proc), FAIL);
    CHECK_EQUAL(ARMCI_PutS(memory, NULL, there, strides, count, 1, proc), FAIL2);
    CHECK_EQUAL(ARMCI_PutS(memory, strides, there, NULL, count, 1, proc), FAIL2);
    CHECK_EQUAL(ARMCI_PutS(memory, strides, there, strides, wrong, 1, proc), FAIL3);
    CHECK_EQUAL(ARMCI_PutS(memory, strides, there, strides, count, -1, proc), FAIL4);
    CHECK_EQUAL(ARMCI_PutS(memory, strides, there, strides, count, ARMCI_MAX_STRIDE_LEVEL + 1, proc), FAIL4);
    CHECK_EQUAL(ARMCI_PutS(memory, strides, there, strides, count, 1, -1), FAIL5);
    CHECK_EQUAL(ARMCI_PutS(memory, strides, there, strides, count, 1, ranks), FAIL5);
    CHECK_EQUAL(ARMCI_GetS(there, NULL, memory, strides, count, 1, proc), FAIL2);
    CHECK_EQUAL(ARMCI_GetS(there, strides, NULL, strides, count, 1, proc), FAIL);
    CHECK_EQUAL(ARMCI_GetS(there, strides, memory, strides, wrong, 1, proc), FAIL3);
    CHECK_EQUAL(ARMCI_AccS(ARMCI_ACC_DBL, &one, memory, strides, there, NULL, count, 1, proc), FAIL2);
    CHECK_EQUAL(ARMCI_AccS(ARMCI_ACC_DBL, &one, memory, strides, there, strides, count, 99, proc), FAIL4);
    CHECK_EQUAL(ARMCI_NbPutS(memory, NULL, there, strides, count, 1, proc, &handle), FAIL2);
    CHECK_EQUAL(ARMCI_NbGetS(there, strides, memory, strides, count, 9, proc, &handle), FAIL4);
    CHECK_EQUAL(ARMCI_NbAccS(ARMCI_ACC_DBL, &one, memory, strides, there, strides, count, 1, -7, &handle), FAIL5);
    CHECK_EQUAL(ARMCI_PutS_flag(memory, NULL, there, strides, count, 1, (int *)there, 1, proc), FAIL2);
    /* Without levels there are no strides, and what is wrong is found in the same order. */
    CHECK_EQUAL(ARMCI_PutS(NULL, NULL, there, NULL, count, 0, -1), FAIL);
    CHECK_EQUAL(ARMCI_GetS(there, NULL, memory, NULL, NULL, 0, proc), FAIL);
    CHECK_EQUAL(ARMCI_PutS(memory, NULL, there, NULL, &wrong[1], 0, -1), FAIL3);
    CHECK_EQUAL(ARMCI_AccS(ARMCI_ACC_DBL, &one, memory, NULL, there, NULL, count, 0, ranks), FAIL5);
    CHECK_EQUAL(ARMCI_NbPutS(memory, NULL, NULL, NULL, count, 0, -1, &handle), FAIL);
    CHECK_EQUAL(ARMCI_NbGetS(there, NULL, memory, NULL, &wrong[1], 0, ranks, &handle), FAIL3);
    CHECK_EQUAL(ARMCI_NbAccS(ARMCI_ACC_DBL, &one, memory, NULL, there, NULL, count, 0, ranks, NULL), FAIL5);
    CHECK_EQUAL(ARMCI_NbPutS(memory, NULL, there, NULL, &none, 0, -1, NULL), FAIL5);
    CHECK_EQUAL(ARMCI_NbPutS(memory, NULL, there, NULL, &none, 0, proc, NULL), 0);
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
}

static void vector(int proc)
{
    void *here[1], *place[1];
    armci_giov_t list, bad;
    double one = 1;
    here[0] = memory;
    place[0] = there;
    list.src_ptr_array = here;
    list.dst_ptr_array = place;
    list.ptr_array_len = 1;
    list.bytes = 8;
    CHECK_EQUAL(ARMCI_PutV(&list, 0, proc), FAIL);
    CHECK_EQUAL(ARMCI_PutV(&list, -1, proc), FAIL);
    CHECK_EQUAL(ARMCI_PutV(&list, 1, -1), FAIL5);
    CHECK_EQUAL(ARMCI_PutV(&list, 1, ranks), FAIL5);
    bad = list;
    bad.src_ptr_array = NULL;
    CHECK_EQUAL(ARMCI_PutV(&bad, 1, proc), FAIL2);
    bad = list;
    bad.dst_ptr_array = NULL;
    CHECK_EQUAL(ARMCI_PutV(&bad, 1, proc), FAIL2);
    bad = list;
    bad.bytes = 0;
    CHECK_EQUAL(ARMCI_PutV(&bad, 1, proc), FAIL3);
    bad = list;
    bad.ptr_array_len = 0;
    CHECK_EQUAL(ARMCI_PutV(&bad, 1, proc), FAIL4);
    CHECK_EQUAL(ARMCI_AccV(ARMCI_ACC_DBL, &one, &bad, 1, proc), FAIL4);
    bad = list;
    bad.src_ptr_array = place;
    bad.dst_ptr_array = here;
    CHECK_EQUAL(ARMCI_GetV(&bad, 0, proc), FAIL);
    CHECK_EQUAL(ARMCI_GetV(&bad, 1, ranks), FAIL5);
    CHECK_EQUAL(ARMCI_NbPutV(&list, 0, proc, NULL), FAIL);
    CHECK_EQUAL(ARMCI_NbGetV(&bad, 1, ranks, NULL), FAIL5);
    CHECK_EQUAL(ARMCI_NbAccV(ARMCI_ACC_DBL, &one, &list, 0, proc, NULL), FAIL);
    CHECK_EQUAL(ARMCI_WaitAll(), 0);
}

static void others(void)
{
    CHECK_EQUAL(ARMCI_Create_mutexes(-1), FAIL);
    CHECK_EQUAL(ARMCI_Create_mutexes(32769), FAIL);
    CHECK_EQUAL(ARMCI_Create_mutexes(32768), 0);
    ARMCI_Lock(32767, next_rank());
    ARMCI_Unlock(32767, next_rank());
    armci_msg_barrier();
    CHECK_EQUAL(ARMCI_Destroy_mutexes(), 0);
    CHECK_EQUAL(ARMCI_Free_local(NULL), 0);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(parts, 256);
    fill(parts[me], (unsigned)me, 256);
    armci_msg_barrier();
    memset(memory, 0x11, sizeof memory);
    for (int proc = 0; proc < ranks; proc++) {
        there = parts[proc];
        contiguous(proc);
        strided(proc);
        vector(proc);
    }
    settle();
    /* Nothing has changed anything, neither here nor there. */
    CHECK(is_filled(parts[me], (unsigned)me, 256));
    CHECK(is_all(memory, 0x11, sizeof memory));
    others();
    free_segment(parts);
    end("errors");
    return 0;
}
