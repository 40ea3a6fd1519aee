/* A hash table that is spread over all PEs: keys are claimed by compare-and-swap, and counted by an atomic addition. */
#include "common.h"

enum { PLACES = 1 << 11, KEYS = 500, REPEATS = 3 };

static uint64_t keys[PLACES];
static uint64_t counts[PLACES];

/* Counts a key, which is not 0. */
static void count(uint64_t key, int pes)
{
    const uint64_t hash = scramble(key);
    const int owner = (int)(hash % (uint64_t)pes);
    for (uint64_t probe = 0; probe < PLACES; probe++) {
        const uint64_t place = (hash / (uint64_t)pes + probe) % PLACES;
        const uint64_t found = shmem_atomic_compare_swap(&keys[place], (uint64_t)0, key, owner);
        if (found == 0 || found == key) {
            shmem_atomic_inc(&counts[place], owner);
            return;
        }
    }
    require(0, "the table is full");
}

/* How often a key was counted. */
static uint64_t count_of(uint64_t key, int pes)
{
    const uint64_t hash = scramble(key);
    const int owner = (int)(hash % (uint64_t)pes);
    for (uint64_t probe = 0; probe < PLACES; probe++) {
        const uint64_t place = (hash / (uint64_t)pes + probe) % PLACES;
        const uint64_t found = shmem_g(&keys[place], owner);
        if (found == key) {
            return shmem_atomic_fetch(&counts[place], owner);
        }
        if (found == 0) {
            return 0;
        }
    }
    return 0;
}

int main(void)
{
    shmem_init();
    const int me = shmem_my_pe(), pes = shmem_n_pes();
    /* All PEs count the same keys, each beginning elsewhere. */
    for (uint64_t turn = 0; turn < KEYS * REPEATS; turn++) {
        count((turn + (uint64_t)me * 37) % KEYS + 1, pes);
    }
    shmem_barrier_all();
    for (uint64_t key = 1; key <= KEYS; key++) {
        require(count_of(key, pes) == (uint64_t)REPEATS * (uint64_t)pes, "a count is wrong");
    }
    require(count_of(KEYS + 1, pes) == 0, "there is a key that nobody has put in");
    finish("hashtable");
    return 0;
}
