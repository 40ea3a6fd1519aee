/* Random updates of a table that is spread over all PEs, and their undoing: the table has to be as it was. */
#include "common.h"

enum { WORDS = 1 << 12, UPDATES = 4 * WORDS };

static uint64_t table[WORDS];

static void update_all(int me, int pes)
{
    for (uint64_t i = 0; i < UPDATES; i++) {
        const uint64_t value = scramble((uint64_t)me * UPDATES + i);
        shmem_atomic_xor(&table[(value >> 8) % WORDS], value, (int)(value % (uint64_t)pes));
    }
    shmem_barrier_all();
}

int main(void)
{
    shmem_init();
    const int me = shmem_my_pe(), pes = shmem_n_pes();
    for (uint64_t i = 0; i < WORDS; i++) {
        table[i] = (uint64_t)me * WORDS + i;
    }
    shmem_barrier_all();
    update_all(me, pes);
    static int changed, changed_anywhere;
    for (uint64_t i = 0; i < WORDS; i++) {
        changed |= table[i] != (uint64_t)me * WORDS + i;
    }
    shmem_or_reduce(SHMEM_TEAM_WORLD, (unsigned *)&changed_anywhere, (unsigned *)&changed, 1);
    require(changed_anywhere, "no word has changed");
    update_all(me, pes);
    for (uint64_t i = 0; i < WORDS; i++) {
        require(table[i] == (uint64_t)me * WORDS + i, "an update was lost");
    }
    finish("gups");
    return 0;
}
