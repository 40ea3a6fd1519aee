/* The whole library again after its end: each time an empty heap and no teams, and the variables as they were left. */
#include "check.h"

static long word, counts[100];
static int source, dest;

static void one_life(int life)
{
    int initialized = -1, provided = -1;
    /* As when several libraries of one program start it, each for itself. */
    shmem_init();
    CHECK_EQUAL(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided), 0);
    start_pes(0); /* Not counted. */
    me = shmem_my_pe();
    pes = shmem_n_pes();
    CHECK_EQUAL(word, life == 0 ? 0 : life + 9);
    long *block = (long *)shmem_malloc(1000 * sizeof(long));
    CHECK(block != NULL);
    block[999] = -1;
    shmem_barrier_all();
    word = 10;
    shmem_long_p(&block[999], me + life, next_pe());
    shmem_long_atomic_inc(&counts[life], 0);
    shmem_barrier_all();
    shmem_long_atomic_add(&word, life, next_pe());
    CHECK_EQUAL(block[999], previous_pe() + life);
    shmem_barrier_all();
    CHECK_EQUAL(shmem_long_g(&counts[life], 0), pes);
    CHECK_EQUAL(word, life + 10);
    shmem_team_t team;
    CHECK_EQUAL(shmem_team_split_strided(SHMEM_TEAM_WORLD, pes - 1, -1, pes, NULL, 0, &team), 0);
    source = me + life;
    CHECK_EQUAL(shmem_int_max_reduce(team, &dest, &source, 1), 0);
    CHECK_EQUAL(dest, pes - 1 + life);
    shmem_finalize();
    shmem_query_initialized(&initialized);
    CHECK(initialized);
    shmem_barrier_all();
    if (life < 3) {
        shmem_finalize();
        shmem_query_initialized(&initialized);
        /* Who it was is known afterwards too. */
        if (initialized || shmem_my_pe() != me || shmem_n_pes() != pes) {
            exit(3);
        }
    }
}

int main(void)
{
    for (int life = 0; life < 4; life++) {
        one_life(life);
    }
    end("again");
    return 0;
}
