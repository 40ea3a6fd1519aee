/* A profiler defines ARMCI_X itself, gets all calls of the program, and passes them on to PARMCI_X. */
#include "check.h"

#include <parmci.h>

static int puts_seen, gets_seen, patches_seen, barriers_seen, waits_seen, notices_seen, mallocs_seen;
static long bytes_seen;

int ARMCI_Put(void *src, void *dst, int bytes, int proc)
{
    puts_seen++;
    bytes_seen += bytes;
    return PARMCI_Put(src, dst, bytes, proc);
}

int ARMCI_Get(void *src, void *dst, int bytes, int proc)
{
    gets_seen++;
    return PARMCI_Get(src, dst, bytes, proc);
}

int ARMCI_PutS(void *src_ptr, int src_stride_arr[], void *dst_ptr, int dst_stride_arr[], int count[],
               int stride_levels, int proc)
{
    patches_seen++;
    return PARMCI_PutS(src_ptr, src_stride_arr, dst_ptr, dst_stride_arr, count, stride_levels, proc);
}

void ARMCI_Barrier(void)
{
    barriers_seen++;
    PARMCI_Barrier();
}

int ARMCI_Wait(armci_hdl_t *nb_handle)
{
    waits_seen++;
    return PARMCI_Wait(nb_handle);
}

int armci_notify(int proc)
{
    notices_seen++;
    return parmci_notify(proc);
}

int ARMCI_Malloc(void *ptr_arr[], armci_size_t bytes)
{
    mallocs_seen++;
    return PARMCI_Malloc(ptr_arr, bytes);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int me = armci_msg_me(), next = next_rank(), count[1] = {100};
    void *parts[RANKS_MAX];
    char out[100], in[100];
    armci_hdl_t handle;
    segment(parts, 1000);
    fill(out, (unsigned)me, sizeof out);
    for (int time = 0; time < 10; time++) {
        CHECK_EQUAL(ARMCI_Put(out, parts[next], 100, next), 0);
    }
    CHECK_EQUAL(ARMCI_Get(parts[next], in, 100, next), 0);
    CHECK(memcmp(in, out, sizeof in) == 0);
    CHECK_EQUAL(ARMCI_PutS(out, NULL, at(parts[next], 200), NULL, count, 0, next), 0);
    /* Calls that nobody has put himself in front of still work, and do not come by. */
    ARMCI_INIT_HANDLE(&handle);
    CHECK_EQUAL(ARMCI_NbPut(out, at(parts[next], 400), 100, next, &handle), 0);
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    CHECK_EQUAL(ARMCI_PutValueInt(5, at(parts[next], 600), next), 0);
    armci_notify(next);
    CHECK_EQUAL(armci_notify_wait(previous_rank(), NULL), 1);
    ARMCI_Barrier();
    CHECK(is_filled(parts[me], (unsigned)previous_rank(), 100));
    CHECK(is_filled(at(parts[me], 200), (unsigned)previous_rank(), 100));
    CHECK(is_filled(at(parts[me], 400), (unsigned)previous_rank(), 100));
    CHECK_EQUAL(*(int *)(void *)at(parts[me], 600), 5);

    /* Calls of the program were seen, calls of the library itself were not. */
    CHECK_EQUAL(puts_seen, 10);
    CHECK_EQUAL(bytes_seen, 1000);
    CHECK_EQUAL(gets_seen, 1);
    CHECK_EQUAL(patches_seen, 1);
    CHECK_EQUAL(barriers_seen, 1);
    CHECK_EQUAL(waits_seen, 1);
    CHECK_EQUAL(notices_seen, 1);
    CHECK_EQUAL(mallocs_seen, 1);
    /* The second name goes past the profiler. */
    CHECK_EQUAL(PARMCI_Put(out, parts[next], 100, next), 0);
    CHECK_EQUAL(puts_seen, 10);
    free_segment(parts);
    end("profiling");
    return 0;
}
