/* The last process dies with mutexes of the first, which gets them; that their holder died is said once.
 *
 * Nobody comes to the end of this program: the first process asks the launcher to end the job. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int me, last, mutex, from;
    char token = 0;
    begin(&argc, &argv);
    me = armci_msg_me();
    last = armci_msg_nproc() - 1;
    CHECK_EQUAL(ARMCI_Create_mutexes(2), 0);
    if (me == last) {
        ARMCI_Lock(0, 0);
        ARMCI_Lock(1, 0);
    }
    ARMCI_Barrier();
    /* Not before all have left the barrier. */
    if (me == last) {
        for (from = 0; from < last; from++)
            armci_msg_rcv(7, &token, 1, NULL, from);
        _exit(3);
    }
    armci_msg_snd(7, &token, 1, last);
    for (mutex = 0; me == 0 && mutex < 2; mutex++) {
        ARMCI_Lock(mutex, 0);
        printf("process %d has mutex %d\n", me, mutex);
        fflush(stdout);
        ARMCI_Unlock(mutex, 0);
    }
    if (me == 0)
        kill(getppid(), SIGTERM);
    for (;;)
        pause();
}
