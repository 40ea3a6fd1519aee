/* Lists as ARMCI-MPI has them: bytes before the number of pieces, given by place. */
#define ARMCI_GIOV_BYTES_FIRST
#include "check.h"

enum { PIECES = 50 };

int main(int argc, char **argv)
{
    static long source[PIECES], copy[PIECES];
    void *parts[RANKS_MAX], *here[PIECES], *there[PIECES], *back[PIECES];
    long one = 1;
    armci_hdl_t handle;
    begin(&argc, &argv);
    const int me = armci_msg_me(), ranks = armci_msg_nproc(), target = (me + 1) % ranks;
    segment(parts, PIECES * 8);
    for (int place = 0; place < PIECES; place++) {
        source[place] = me * 1000 + place;
        here[place] = &source[place];
        back[place] = &copy[place];
        there[place] = at(parts[target], 8 * place);
    }
    armci_giov_t put[2] = {{here, there, 8, 20}, {here + 20, there + 20, 8, PIECES - 20}};
    armci_giov_t get[2] = {{there, back, 8, 10}, {there + 10, back + 10, 8, PIECES - 10}};
    CHECK_EQUAL(ARMCI_PutV(put, 2, target), 0);
    CHECK_EQUAL(ARMCI_GetV(get, 2, target), 0);
    CHECK(memcmp(source, copy, sizeof source) == 0);
    ARMCI_Fence(target);
    ARMCI_Barrier();
    CHECK_EQUAL(ARMCI_AccV(ARMCI_ACC_LNG, &one, put, 2, target), 0);
    ARMCI_Fence(target);
    ARMCI_INIT_HANDLE(&handle);
    CHECK_EQUAL(ARMCI_NbGetV(get, 2, target, &handle), 0);
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    for (int place = 0; place < PIECES; place++) {
        CHECK_EQUAL(copy[place], 2 * source[place]);
    }
    CHECK_EQUAL(ARMCI_NbPutV(put, 2, target, NULL), 0);
    CHECK_EQUAL(ARMCI_NbAccV(ARMCI_ACC_LNG, &one, put, 0, target, NULL), FAIL);
    CHECK_EQUAL(ARMCI_WaitAll(), 0);
    ARMCI_Fence(target);
    CHECK_EQUAL(ARMCI_GetV(get, 2, target), 0);
    CHECK(memcmp(source, copy, sizeof source) == 0);
    /* What is wrong has the codes that it has otherwise. */
    CHECK_EQUAL(ARMCI_PutV(put, 0, target), FAIL);
    CHECK_EQUAL(ARMCI_PutV(NULL, 1, target), FAIL2);
    put[0].bytes = 0;
    CHECK_EQUAL(ARMCI_PutV(put, 1, target), FAIL3);
    free_segment(parts);
    end("giov");
    return 0;
}
