/* Checkpoints are not made: the calls are there, say so, and everything else goes on. */
#include "check.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int me = armci_msg_me();
    armci_ckpt_ds_t list;
    ARMCI_Group world;
    void *parts[RANKS_MAX];
    ARMCI_Group_get_world(&world);
    segment(parts, 64);
    armci_set_spare_procs(0);

    /* As a program that makes checkpoints does it. */
    ARMCI_Ckpt_create_ds(&list, 2);
    CHECK_EQUAL(list.count, 2);
    list.ptr_arr[0] = parts[me];
    list.ptr_arr[1] = &list;
    list.sz[0] = 64;
    list.sz[1] = sizeof list;
    list.saveonce[0] = list.saveonce[1] = 0;
    int record = ARMCI_Ckpt_init(NULL, &world, 1, 0, &list);
    CHECK(record < 0);
    int answer = ARMCI_Ckpt(record);
    CHECK(answer != ARMCI_CKPT && answer != ARMCI_RESTART);
    CHECK(ARMCI_Restart_simulate(record, 1) < 0);
    ARMCI_Ckpt_Recover(record, 0);
    ARMCI_Ckpt_finalize(record);
    armci_set_spare_procs(1);

    /* The processes that compute are all. */
    ARMCI_Group *computing = ARMCI_Get_ft_group();
    int size = 0;
    CHECK(computing != NULL);
    ARMCI_Group_size(computing, &size);
    CHECK_EQUAL(size, armci_msg_nproc());
    CHECK_EQUAL(ARMCI_PutValueInt(me, parts[next_rank()], next_rank()), 0);
    settle();
    CHECK_EQUAL(*(int *)parts[me], previous_rank());
    free_segment(parts);
    end("checkpoint");
    return 0;
}
