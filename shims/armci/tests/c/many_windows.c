/* Hundreds of segments at once, freed in another order. A node may keep a file open for each, but not every process. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <dirent.h>

enum { COUNT = 400 };

static int me, ranks;
static void *parts[COUNT][RANKS_MAX];

static size_t bytes_of(int which)
{
    return (size_t)(64 + which % 37 * 300);
}

static int open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    int count = 0;
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

static void make(int which)
{
    CHECK_EQUAL(ARMCI_Malloc(parts[which], (armci_size_t)bytes_of(which)), 0);
    fill(parts[which][me], (unsigned)(which * 16 + me), bytes_of(which));
}

static void look(int which)
{
    char copy[64 + 37 * 300];
    for (int rank = 0; rank < ranks; rank++) {
        CHECK_EQUAL(ARMCI_Get(parts[which][rank], copy, (int)bytes_of(which), rank), 0);
        CHECK(is_filled(copy, (unsigned)(which * 16 + rank), bytes_of(which)));
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    make(0);
    int opened = -open_files();
    for (int which = 1; which < COUNT; which++) {
        make(which);
    }
    opened += open_files();
    armci_msg_igop(&opened, 1, OPERATION("+"));
    CHECK(opened <= armci_domain_count(ARMCI_DOMAIN_SMP) * COUNT + 4 * ranks);
    for (int which = 0; which < COUNT; which += 7) {
        look(which);
    }
    armci_msg_barrier();
    /* Every other one goes, and others come in their place. */
    for (int which = 0; which < COUNT; which += 2) {
        CHECK_EQUAL(ARMCI_Free(parts[which][me]), 0);
    }
    for (int which = 0; which < COUNT; which += 2) {
        make(which);
    }
    armci_msg_barrier();
    for (int which = 0; which < COUNT; which++) {
        look(which);
    }
    armci_msg_barrier();
    for (int which = COUNT - 1; which >= 0; which--) {
        CHECK_EQUAL(ARMCI_Free(parts[which][me]), 0);
    }
    end("many_windows");
    return 0;
}
