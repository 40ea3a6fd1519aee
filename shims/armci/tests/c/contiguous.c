/* Put and get of every length, anywhere in a segment, to everybody and to oneself. */
#include "check.h"

static const int lengths[] = {0,    1,    2,    3,     7,     8,     9,     15,     16,      31,      63,     64,
                              65,   100,  127,  255,   1000,  1024,  4000,  4032,    4095,    4096,    4097,   8191,
                              8192, 9999, 16384, 65535, 65536, 65537, 99999, 262144, 1000000, 1048576, 1048577};
enum { LENGTHS = sizeof lengths / sizeof lengths[0], LONGEST = 1048577, MARGIN = 32 };

static int me, ranks;
static void *parts[RANKS_MAX];

/* A place for each origin, with a margin that nobody writes to. */
static char *place_of(int target, int origin)
{
    return at(parts[target], (long)origin * (LONGEST + 2 * MARGIN) + MARGIN);
}

static void every_length_is_put_and_got(char *source, char *back)
{
    for (int which = 0; which < LENGTHS; which++) {
        int length = lengths[which], shift = which % 5;
        for (int target = 0; target < ranks; target++) {
            unsigned seed = (unsigned)(which * 100 + me * 10 + target);
            char *place = place_of(target, me) + shift;
            fill(source + shift, seed, (size_t)length);
            CHECK_EQUAL(ARMCI_Put(source + shift, place, length, target), 0);
            /* The source may be reused at once. */
            memset(source + shift, 0x55, (size_t)length);
            memset(back, 0xaa, (size_t)length + 16);
            CHECK_EQUAL(ARMCI_Get(place, back + 3, length, target), 0);
            CHECK(is_filled(back + 3, seed, (size_t)length));
            CHECK(is_all(back, 0xaa, 3));
            CHECK(is_all(back + 3 + length, 0xaa, 13));
        }
        settle();
        for (int origin = 0; origin < ranks; origin++) {
            unsigned seed = (unsigned)(which * 100 + origin * 10 + me);
            char *place = place_of(me, origin) + shift;
            CHECK(is_filled(place, seed, (size_t)length));
            CHECK(is_all(place + length, 0, (size_t)(MARGIN - shift)));
            CHECK(is_all(place - shift - MARGIN, 0, (size_t)(MARGIN + shift)));
            memset(place, 0, (size_t)length);
        }
        armci_msg_barrier();
    }
}

/* The source of a put and the target of a get may be segments too, even of the same process. */
static void segments_are_sources(void)
{
    int next = next_rank();
    fill(place_of(me, me), (unsigned)me, 5000);
    settle();
    CHECK_EQUAL(ARMCI_Put(place_of(me, me), place_of(next, me) + 10000, 5000, next), 0);
    settle();
    CHECK(is_filled(place_of(me, previous_rank()) + 10000, (unsigned)previous_rank(), 5000));
    armci_msg_barrier();
    CHECK_EQUAL(ARMCI_Get(place_of(next, next), place_of(me, me) + 20000, 5000, next), 0);
    CHECK(is_filled(place_of(me, me) + 20000, (unsigned)next, 5000));
    /* From one place to another of the same segment. */
    CHECK_EQUAL(ARMCI_Put(place_of(me, me), place_of(me, me) + 30000, 5000, me), 0);
    CHECK_EQUAL(ARMCI_Get(place_of(me, me) + 30000, place_of(me, me) + 40000, 5000, me), 0);
    CHECK(is_filled(place_of(me, me) + 40000, (unsigned)me, 5000));
    settle();
}

static void the_first_and_the_last_byte_are_inside(void)
{
    void *small[RANKS_MAX];
    enum { BYTES = 777 };
    segment(small, BYTES);
    int next = next_rank();
    char first = (char)(me + 1), last = (char)(me + 2), seen = 0;
    CHECK_EQUAL(ARMCI_Put(&first, small[next], 1, next), 0);
    CHECK_EQUAL(ARMCI_Put(&last, at(small[next], BYTES - 1), 1, next), 0);
    settle();
    CHECK_EQUAL(*(char *)small[me], previous_rank() + 1);
    CHECK_EQUAL(*at(small[me], BYTES - 1), previous_rank() + 2);
    CHECK(is_all(at(small[me], 1), 0, BYTES - 2));
    CHECK_EQUAL(ARMCI_Get(at(small[next], BYTES - 1), &seen, 1, next), 0);
    CHECK_EQUAL(seen, me + 2);
    armci_msg_barrier();
    char all[BYTES];
    fill(all, (unsigned)me, BYTES);
    CHECK_EQUAL(ARMCI_Put(all, small[next], BYTES, next), 0);
    settle();
    CHECK(is_filled(small[me], (unsigned)previous_rank(), BYTES));
    free_segment(small);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    segment(parts, (size_t)ranks * (LONGEST + 2 * MARGIN));
    char *source = (char *)allocate(LONGEST + 16), *back = (char *)allocate(LONGEST + 16);
    every_length_is_put_and_got(source, back);
    segments_are_sources();
    the_first_and_the_last_byte_are_inside();
    CHECK_EQUAL(ARMCI_Put1(back, source, 10, me), 0);
    CHECK(memcmp(back, source, 10) == 0);
    free(source);
    free(back);
    free_segment(parts);
    end("contiguous");
    return 0;
}
