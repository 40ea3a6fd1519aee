/* A queue at PE 0 that all PEs put work into and take work from, under a lock: every item is taken exactly once. */
#include "common.h"

enum { ITEMS = 60, PLACES = 32 };

static long lock;
static long head, tail;
static long places[PLACES];

/* Whether there was room. */
static int push(long item)
{
    shmem_set_lock(&lock);
    const long from = shmem_g(&head, 0), to = shmem_g(&tail, 0);
    const int has_room = to - from < PLACES;
    if (has_room) {
        shmem_p(&places[to % PLACES], item, 0);
        shmem_p(&tail, to + 1, 0);
    }
    shmem_clear_lock(&lock);
    return has_room;
}

/* An item, or 0 if there is none. */
static long pop(void)
{
    shmem_set_lock(&lock);
    const long from = shmem_g(&head, 0), to = shmem_g(&tail, 0);
    long item = 0;
    if (from < to) {
        item = shmem_g(&places[from % PLACES], 0);
        shmem_p(&head, from + 1, 0);
    }
    shmem_clear_lock(&lock);
    return item;
}

int main(void)
{
    shmem_init();
    const int me = shmem_my_pe(), pes = shmem_n_pes();
    const long all = (long)ITEMS * pes;
    static long taken_by_all, seen[ITEMS * 64];
    require(pes <= 64, "more PEs than this program knows");
    long given = 0;
    while (given < ITEMS || shmem_atomic_fetch(&taken_by_all, 0) < all) {
        if (given < ITEMS && push((long)me * ITEMS + given + 1)) {
            given++;
        }
        const long item = pop();
        if (item != 0) {
            shmem_atomic_inc(&seen[item - 1], 0);
            shmem_atomic_inc(&taken_by_all, 0);
        }
    }
    shmem_barrier_all();
    if (me == 0) {
        for (long item = 0; item < all; item++) {
            require(seen[item] == 1, "an item was not taken exactly once");
        }
    }
    finish("queue");
    return 0;
}
