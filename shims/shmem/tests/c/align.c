/* shmem_align: at every PE what was asked for, or nothing at any. An argument says up to which alignment there has to be a block. */
#include "check.h"

int main(int argc, char **argv)
{
    enum { GIVEN = 1, REFUSED = 2, WRONG = 4 };
    static unsigned found[2];
    begin();
    const size_t given_up_to = argc > 1 ? (size_t)strtoull(argv[1], NULL, 0) : (size_t)1 << 30;
    /* So that no block is at the start of the heap. */
    void *first = shmem_malloc(100);
    for (size_t alignment = sizeof(void *); alignment != 0; alignment *= 2) {
        char *block = (char *)shmem_align(alignment, 100);
        if (block == NULL) {
            found[0] = REFUSED;
        } else {
            found[0] = (uintptr_t)block % alignment == 0 ? GIVEN : WRONG;
            block[99] = (char)me;
        }
        CHECK_EQUAL(found[0] & WRONG, 0);
        CHECK(alignment > given_up_to || found[0] == GIVEN);
        CHECK_EQUAL(shmem_uint_or_reduce(SHMEM_TEAM_WORLD, &found[1], &found[0], 1), 0);
        CHECK_EQUAL(found[1], found[0]);
        shmem_free(block);
    }
    CHECK(shmem_align(24, 100) == NULL);
    CHECK(shmem_align(0, 100) == NULL);
    CHECK(shmem_align(64, 0) == NULL);
    CHECK(shmem_align(4096, (size_t)-1) == NULL);
    shmem_free(first);
    (void)next_pe;
    (void)previous_pe;
    end("align");
    return 0;
}
