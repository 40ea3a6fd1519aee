/* Who this is before init, init more than once, one finalize for all, and a second life after the first. */
#include "check.h"

int main(int argc, char **argv)
{
    int arguments = argc;
    char *program = argv[0];

#ifdef WITH_MPI
    MPI_Init(&argc, &argv);
#else
    armci_msg_init(&argc, &argv);
#endif
    int me = armci_msg_me(), ranks = armci_msg_nproc();
    CHECK(ranks >= 1 && me >= 0 && me < ranks);
    CHECK_EQUAL(ARMCI_Initialized(), 0);

    /* Messages work without ARMCI. */
#ifndef WITH_MPI
    int sum = me;
    armci_msg_igop(&sum, 1, OPERATION("+"));
    CHECK_EQUAL(sum, ranks * (ranks - 1) / 2);
    armci_msg_barrier();
#endif
    CHECK_EQUAL(ARMCI_Init_args(&argc, &argv), 0);
    CHECK_EQUAL(argc, arguments);
    CHECK(argv[0] == program);
    CHECK_EQUAL(ARMCI_Initialized(), 1);
    CHECK_EQUAL(armci_msg_me(), me);
    CHECK_EQUAL(armci_msg_nproc(), ranks);

    /* Once more does nothing, and is not counted. */
    CHECK_EQUAL(ARMCI_Init(), 0);
    CHECK_EQUAL(ARMCI_Init(), 0);

    double before = armci_timer();
    void *parts[RANKS_MAX];
    segment(parts, 64);
    CHECK_EQUAL(ARMCI_PutValueInt(me + 1, parts[next_rank()], next_rank()), 0);
    settle();
    CHECK_EQUAL(*(int *)parts[me], previous_rank() + 1);
    free_segment(parts);
    CHECK(armci_timer() >= before);
    ARMCI_Cleanup();
    ARMCI_Finalize();
    CHECK_EQUAL(ARMCI_Initialized(), 0);

#ifndef WITH_MPI
    /* Once more does nothing. */
    ARMCI_Finalize();
    int most = me;
    armci_msg_igop(&most, 1, OPERATION("max"));
    CHECK_EQUAL(most, ranks - 1);
#endif

    /* A second life has segments, notices and mutexes of its own. */
    CHECK_EQUAL(ARMCI_Init(), 0);
    CHECK_EQUAL(ARMCI_Initialized(), 1);
    segment(parts, 64);
    CHECK_EQUAL(ARMCI_PutValueInt(me + 7, parts[next_rank()], next_rank()), 0);
    settle();
    CHECK_EQUAL(*(int *)parts[me], previous_rank() + 7);
    free_segment(parts);
#ifndef WITH_MPI
    int count = 0;
    CHECK_EQUAL(armci_notify(next_rank()), 1);
    CHECK_EQUAL(armci_notify_wait(previous_rank(), &count), 1);
    CHECK_EQUAL(count, 1);
#endif
    end("init_end");
    return 0;
}
