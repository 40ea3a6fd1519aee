/* Which processes share a node: all answers fit together. */
#include "check.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int me = armci_msg_me(), ranks = armci_msg_nproc();
    int nodes = armci_domain_count(ARMCI_DOMAIN_SMP), mine = armci_domain_my_id(ARMCI_DOMAIN_SMP);
    CHECK(nodes >= 1 && nodes <= ranks);
    CHECK(mine >= 0 && mine < nodes);
    CHECK_EQUAL(armci_domain_id(ARMCI_DOMAIN_SMP, me), mine);
    CHECK_EQUAL(armci_domain_nprocs(ARMCI_DOMAIN_SMP, -1), armci_domain_nprocs(ARMCI_DOMAIN_SMP, mine));

    /* Every process is on one node, at one place of it. */
    int found[RANKS_MAX], total = 0;
    memset(found, 0, sizeof found);
    for (int node = 0; node < nodes; node++) {
        int count = armci_domain_nprocs(ARMCI_DOMAIN_SMP, node), before = -1;
        CHECK(count >= 1);
        total += count;
        for (int place = 0; place < count; place++) {
            int rank = armci_domain_glob_proc_id(ARMCI_DOMAIN_SMP, node, place);
            CHECK(rank > before && rank < ranks);
            before = rank;
            found[rank]++;
            CHECK_EQUAL(armci_domain_id(ARMCI_DOMAIN_SMP, rank), node);
            CHECK_EQUAL(armci_domain_same_id(ARMCI_DOMAIN_SMP, rank) != 0, node == mine);
            CHECK_EQUAL(armci_sameclusnode(rank) != 0, node == mine);
            CHECK(!ARMCI_Same_node(rank) || node == mine);
        }
    }
    CHECK_EQUAL(total, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        CHECK_EQUAL(found[rank], 1);
    }
    CHECK(armci_domain_same_id(ARMCI_DOMAIN_SMP, me) != 0);

    /* All are of one mind. */
    int most = nodes, least = nodes;
    armci_msg_igop(&most, 1, OPERATION("max"));
    armci_msg_igop(&least, 1, OPERATION("min"));
    CHECK_EQUAL(most, least);
#ifndef WITH_MPI
    ARMCI_Group world;
    ARMCI_Group_get_world(&world);
    CHECK_EQUAL(ARMCI_Uses_shm_grp(&world), ARMCI_Uses_shm());
#endif
    end("domains");
    return 0;
}
