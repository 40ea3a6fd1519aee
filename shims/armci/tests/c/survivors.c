/* The last process dies where that does not end the job: the others never need it, and come to their end. */
#include "check.h"

#include <signal.h>

int main(int argc, char **argv)
{
    static void *parts[RANKS_MAX];
    int me, last, next, from;
    char left = 1;
    long mine, got = -1;

    armci_msg_init(&argc, &argv);
    ARMCI_Init();
    me = armci_msg_me();
    last = armci_msg_nproc() - 1;
    segment(parts, 64);
    ARMCI_Barrier();
    /* Who dies while another one is still in the barrier may fail it there. */
    if (me == last) {
        for (from = 0; from < last; ++from) {
            armci_msg_rcv(7, &left, sizeof left, NULL, from);
        }
        raise(SIGKILL);
    }
    armci_msg_snd(7, &left, sizeof left, last);
    next = (me + 1) % last;
    mine = 100 + me;
    ARMCI_Put(&mine, at(parts[next], 8 * me), sizeof mine, next);
    ARMCI_Fence(next);
    ARMCI_Get(at(parts[next], 8 * me), &got, sizeof got, next);
    ARMCI_AllFence();
    ARMCI_Finalize();
    armci_msg_finalize();
    printf("process %d finished with %ld\n", me, got);
    return 0;
}
