/* The symmetric heap: blocks, alignment, zeroed and grown ones, exhaustion; and who reaches what. */
#include "check.h"

static int variable = 3;
static char large[64 << 20];

int main(void)
{
    begin();
    CHECK(shmem_malloc(0) == NULL);
    shmem_free(NULL);
    CHECK(shmem_calloc(0, 8) == NULL && shmem_calloc(8, 0) == NULL);
    char *blocks[20];
    for (int turn = 0; turn < 20; turn++) {
        blocks[turn] = (char *)shmem_malloc((size_t)turn * 100 + 1);
        CHECK(blocks[turn] != NULL && (uintptr_t)blocks[turn] % 16 == 0);
        memset(blocks[turn], turn, (size_t)turn * 100 + 1);
    }
    shmem_barrier_all();
    for (int turn = 0; turn < 20; turn++) {
        CHECK_EQUAL(blocks[turn][turn * 100], turn);
        /* The same place at every PE: a block is where the next one's is. */
        char seen = -1;
        shmem_getmem(&seen, blocks[turn] + turn * 100, 1, next_pe());
        CHECK_EQUAL(seen, turn);
    }
    shmem_barrier_all();
    for (int turn = 0; turn < 20; turn++) {
        shmem_free(blocks[(turn * 7) % 20]);
    }
    long *zeroes = (long *)shmem_calloc(5000, sizeof(long));
    for (int i = 0; i < 5000; i++) {
        CHECK_EQUAL(zeroes[i], 0);
        zeroes[i] = i;
    }
    zeroes = (long *)shmem_realloc(zeroes, 50000 * sizeof(long));
    CHECK_EQUAL(zeroes[4999], 4999);
    /* A shorter block stays where it is, and so does one with nothing behind it. */
    long *const place = zeroes;
    zeroes = (long *)shmem_realloc(zeroes, 10 * sizeof(long));
    CHECK(zeroes == place);
    CHECK_EQUAL(zeroes[9], 9);
    zeroes = (long *)shmem_realloc(zeroes, (size_t)3 << 30);
    CHECK(zeroes == place);
    CHECK_EQUAL(zeroes[9], 9);
    zeroes = (long *)shmem_realloc(zeroes, 10 * sizeof(long));
    void *behind = shmem_malloc(10);
    zeroes = (long *)shmem_realloc(zeroes, 5000 * sizeof(long));
    CHECK(zeroes != place);
    CHECK_EQUAL(zeroes[9], 9);
    shmem_free(behind);
    CHECK(shmem_realloc(zeroes, 0) == NULL);
    CHECK((zeroes = (long *)shmem_realloc(NULL, 100)) != NULL);
    shmem_free(zeroes);
    for (size_t alignment = sizeof(void *); alignment <= 1 << 20; alignment *= 2) {
        void *block = shmem_align(alignment, 100);
        CHECK(block != NULL && (uintptr_t)block % alignment == 0);
        shmem_free(block);
    }
    CHECK(shmem_align(24, 100) == NULL);
    CHECK(shmem_align(64, 0) == NULL);
    void *hinted = shmem_malloc_with_hints(100, SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE);
    CHECK(hinted != NULL);
    CHECK(shmem_malloc((size_t)1 << 50) == NULL);
    CHECK(shmem_malloc((size_t)-1) == NULL);

    int local = 0;
    CHECK(shmem_addr_accessible(hinted, next_pe()) && shmem_addr_accessible(&variable, next_pe()));
    CHECK(!shmem_addr_accessible(&local, next_pe()) && !shmem_addr_accessible(hinted, pes));
    CHECK(shmem_pe_accessible(pes - 1) && !shmem_pe_accessible(pes) && !shmem_pe_accessible(-1));
    CHECK(shmem_ptr(hinted, me) == hinted && shmem_ptr(&variable, me) == &variable);
    CHECK(shmem_ptr(&local, me) == NULL);
    /* Pointers to the others of this node lead to their memory. */
    int *theirs = (int *)shmem_ptr(&variable, next_pe());
    if (theirs != NULL && pes > 1) {
        *theirs = me + 40;
    } else if (pes > 1) {
        shmem_int_p(&variable, me + 40, next_pe());
    }
    shmem_barrier_all();
    CHECK_EQUAL(variable, pes > 1 ? previous_pe() + 40 : 3);
    shmem_putmem(large + sizeof large - 4, &variable, 4, next_pe());
    shmem_barrier_all();
    int last;
    memcpy(&last, large + sizeof large - 4, 4);
    CHECK_EQUAL(last, pes > 1 ? (previous_pe() + pes - 1) % pes + 40 : 3);
    CHECK_EQUAL(large[sizeof large / 2], 0);
    end("memory");
    return 0;
}
