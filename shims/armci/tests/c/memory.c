/* Segments of every kind: of different sizes, without bytes, of groups, of one process alone; and local memory. */
#include "check.h"

static int me, ranks;

static size_t bytes_of(int rank)
{
    return (size_t)(rank + 1) * 1000 + 7;
}

/* Each process writes the whole of its neighbour's part, whose size is not its own. */
static void parts_differ_in_size(void)
{
    void *parts[RANKS_MAX];
    CHECK_EQUAL(ARMCI_Malloc(parts, (armci_size_t)bytes_of(me)), 0);
    for (int rank = 0; rank < ranks; rank++) {
        CHECK(parts[rank] != NULL);
    }
    memset(parts[me], 0xee, bytes_of(me));
    armci_msg_barrier();
    int next = next_rank();
    void *source = allocate(bytes_of(next));
    fill(source, (unsigned)me, bytes_of(next));
    CHECK_EQUAL(ARMCI_Put(source, parts[next], (int)bytes_of(next), next), 0);
    settle();
    CHECK(is_filled(parts[me], (unsigned)previous_rank(), bytes_of(me)));
    free(source);
    free_segment(parts);
}

static void some_have_no_bytes(void)
{
    void *parts[RANKS_MAX];
    size_t mine = me % 2 == 0 ? 256 : 0;
    CHECK_EQUAL(ARMCI_Malloc(parts, (armci_size_t)mine), 0);
    for (int rank = 0; rank < ranks; rank++) {
        CHECK((parts[rank] != NULL) == (rank % 2 == 0));
    }
    int value = 41;
    CHECK_EQUAL(ARMCI_Put(&value, at(parts[0], 4 * me), sizeof value, 0), 0);
    settle();
    if (me == 0) {
        for (int rank = 0; rank < ranks; rank++) {
            CHECK_EQUAL(((int *)parts[0])[rank], 41);
        }
    }
    free_segment(parts);

    /* Only the last one has bytes. */
    CHECK_EQUAL(ARMCI_Malloc(parts, me == ranks - 1 ? 8 : 0), 0);
    CHECK(parts[ranks - 1] != NULL);
    CHECK(ranks == 1 || parts[0] == NULL);
    free_segment(parts);
}

static void nobody_has_bytes(void)
{
    void *parts[RANKS_MAX];
    for (int rank = 0; rank < RANKS_MAX; rank++) {
        parts[rank] = &parts[rank];
    }
    CHECK_EQUAL(ARMCI_Malloc(parts, 0), 0);
    for (int rank = 0; rank < ranks; rank++) {
        CHECK(parts[rank] == NULL);
    }
    CHECK(parts[ranks] == &parts[ranks] || ranks == RANKS_MAX);
    CHECK_EQUAL(ARMCI_Free(NULL), 0);
}

/* Segments come and go in an order of their own, and do not overlap. */
static void segments_are_freed_in_any_order(void)
{
    enum { COUNT = 9 };
    void *parts[COUNT][RANKS_MAX];
    size_t bytes[COUNT];
    for (int round = 0; round < 3; round++) {
        for (int which = 0; which < COUNT; which++) {
            bytes[which] = (size_t)(which * which * 511 + 1);
            segment(parts[which], bytes[which]);
            fill(parts[which][me], (unsigned)(which * 31 + me), bytes[which]);
        }
        settle();
        for (int which = 0; which < COUNT; which++) {
            void *copy = allocate(bytes[which]);
            CHECK_EQUAL(ARMCI_Get(parts[which][next_rank()], copy, (int)bytes[which], next_rank()), 0);
            CHECK(is_filled(copy, (unsigned)(which * 31 + next_rank()), bytes[which]));
            CHECK(is_filled(parts[which][me], (unsigned)(which * 31 + me), bytes[which]));
            free(copy);
        }
        for (int which = 0; which < COUNT; which++) {
            free_segment(parts[(which * 4 + round) % COUNT]);
        }
    }
}

/* One segment after the other, as large as the one before or nearly, now with parts without bytes and now without any. */
static size_t bytes_in_round(int rank, int round)
{
    return round % 3 == 0 && (rank + round) % 4 == 0 ? 0 : 5000 + (size_t)(rank * 7 + round * 13) % 3000;
}

static void memory_is_used_again(void)
{
    enum { ROUNDS = 24, KEPT = 3 };
    void *parts[KEPT][RANKS_MAX];
    for (int round = 0; round < ROUNDS; round++) {
        void **these = parts[round % KEPT];
        if (round >= KEPT) {
            free_segment(these);
        }
        size_t mine = bytes_in_round(me, round);
        CHECK_EQUAL(ARMCI_Malloc(these, (armci_size_t)mine), 0);
        for (int rank = 0; rank < ranks; rank++) {
            CHECK((these[rank] != NULL) == (bytes_in_round(rank, round) > 0));
        }
        for (size_t byte = 0; byte < mine; byte++) {
            CHECK_EQUAL(((char *)these[me])[byte], 0);
        }
        settle();
        int next = next_rank();
        size_t bytes = bytes_in_round(next, round);
        if (bytes > 0) {
            void *source = allocate(bytes);
            fill(source, (unsigned)(me + round), bytes);
            CHECK_EQUAL(ARMCI_Put(source, these[next], (int)bytes, next), 0);
            free(source);
        }
        settle();
        CHECK(mine == 0 || is_filled(these[me], (unsigned)(previous_rank() + round), mine));
    }
    for (int kept = 0; kept < KEPT; kept++) {
        free_segment(parts[kept]);
    }
}

static void groups_have_segments(void)
{
    /* All but the first, or all if there is only one. */
    int list[RANKS_MAX], members = 0;
    for (int rank = ranks > 1 ? 1 : 0; rank < ranks; rank++) {
        list[members++] = rank;
    }
    if (me == 0 && ranks > 1) {
        armci_msg_barrier();
        return;
    }
    ARMCI_Group group;
    ARMCI_Group_create(members, list, &group);
    int place = -1;
    CHECK_EQUAL(ARMCI_Group_rank(&group, &place), 0);
    CHECK_EQUAL(list[place], me);
    void *parts[RANKS_MAX];
    CHECK_EQUAL(ARMCI_Malloc_group(parts, 8 * (place + 1), &group), 0);
    /* The table has the members' order, calls take numbers of the world. */
    int next = (place + 1) % members;
    CHECK_EQUAL(ARMCI_PutValueLong(100 + place, at(parts[next], 8 * next), list[next]), 0);
    ARMCI_AllFence();
    armci_msg_group_barrier(&group);
    CHECK_EQUAL(((long *)parts[place])[place], 100 + (place + members - 1) % members);
    armci_msg_group_barrier(&group);
    CHECK_EQUAL(ARMCI_Free_group(parts[place], &group), 0);
    ARMCI_Group_free(&group);
    armci_msg_barrier();
}

static void local_memory_is_memory(void)
{
    char *first = (char *)ARMCI_Malloc_local(1000);
    char *second = (char *)ARMCI_Malloc_local(1 << 20);
    CHECK(first != NULL && second != NULL);
    fill(first, 1, 1000);
    fill(second, 2, 1 << 20);
    CHECK(is_filled(first, 1, 1000));
    void *parts[RANKS_MAX];
    segment(parts, 1 << 20);
    CHECK_EQUAL(ARMCI_Put(second, parts[next_rank()], 1 << 20, next_rank()), 0);
    settle();
    memset(second, 0, 1 << 20);
    CHECK_EQUAL(ARMCI_Get(parts[next_rank()], second, 1 << 20, next_rank()), 0);
    CHECK(is_filled(second, 2, 1 << 20));
    free_segment(parts);
    CHECK_EQUAL(ARMCI_Free_local(first), 0);
    CHECK_EQUAL(ARMCI_Free_local(second), 0);
}

#ifndef WITH_MPI
static void named_kinds_of_memory_are_memory(void)
{
    void *parts[RANKS_MAX];
    CHECK_EQUAL(ARMCI_Malloc_memdev(parts, 64, "dram"), 0);
    CHECK_EQUAL(ARMCI_PutValueInt(me, parts[next_rank()], next_rank()), 0);
    settle();
    CHECK_EQUAL(*(int *)parts[me], previous_rank());
    armci_msg_barrier();
    CHECK_EQUAL(ARMCI_Free_memdev(parts[me]), 0);

    ARMCI_Group world;
    ARMCI_Group_get_world(&world);
    CHECK_EQUAL(ARMCI_Malloc_group_memdev(parts, 64, &world, NULL), 0);
    CHECK_EQUAL(ARMCI_PutValueInt(me, parts[next_rank()], next_rank()), 0);
    settle();
    CHECK_EQUAL(*(int *)parts[me], previous_rank());
    armci_msg_barrier();
    CHECK_EQUAL(ARMCI_Free_group(parts[me], &world), 0);
}

/* Each process makes a segment in its turn, and tells the others by a message. */
static void one_process_makes_a_segment_alone(void)
{
    for (int owner = 0; owner < ranks; owner++) {
        armci_meminfo_t info;
        size_t bytes = 4096 * (size_t)(owner + 1);
        memset(&info, 0, sizeof info);
        if (me == owner) {
            ARMCI_Memget(bytes, &info, 0);
            CHECK(info.armci_addr != NULL && info.addr != NULL);
            memset(info.addr, 0, bytes);
        }
        armci_msg_brdcst(&info, sizeof info, owner);
        CHECK_EQUAL(info.cpid, owner);
        CHECK(info.size >= bytes);
        char *start = (char *)ARMCI_Memat(&info, 0);
        CHECK(start != NULL);
        CHECK((char *)ARMCI_Memat(&info, 100) == start + 100);
        CHECK_EQUAL(ARMCI_PutValueLong(1000 + me, start + 8 * me, owner), 0);
        /* The last byte is inside. */
        char last = (char)(me + 1), seen = 0;
        if (me == 0) {
            CHECK_EQUAL(ARMCI_Put(&last, start + bytes - 1, 1, owner), 0);
        }
        settle();
        for (int rank = 0; rank < ranks; rank++) {
            CHECK_EQUAL(ARMCI_GetValueLong(start + 8 * rank, owner), 1000 + rank);
        }
        CHECK_EQUAL(ARMCI_Get(start + bytes - 1, &seen, 1, owner), 0);
        CHECK_EQUAL(seen, 1);
        long one = 0;
        CHECK_EQUAL(ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &one, start + 8 * ranks, 1, owner), 0);
        CHECK(one >= 0 && one < ranks);
        settle();
        if (me != owner) {
            ARMCI_Memdt(&info, 0);
        }
        armci_msg_barrier();
        if (me == owner) {
            CHECK_EQUAL(((long *)info.addr)[ranks], ranks);
            ARMCI_Memctl(&info);
        }
        armci_msg_barrier();
    }
}

/* As Global Arrays' pointer arrays do it: the owner keeps a header of its own in front, tells others the address behind
 * it, and those on other nodes use that at once. */
static void addresses_alone_are_enough(void)
{
    enum { HEADER_BYTES = sizeof(armci_meminfo_t), PIECES = 20 };
    armci_meminfo_t infos[PIECES], told;
    int next = next_rank(), round;
    for (round = 0; round < 3; round++) {
        for (int piece = 0; piece < PIECES; piece++) {
            ARMCI_Memget(HEADER_BYTES + 64 * (size_t)(piece + 1), &infos[piece], 0);
            memset(infos[piece].addr, 0, infos[piece].size);
        }
        told = infos[7];
        told.armci_addr += HEADER_BYTES;
        told.addr += HEADER_BYTES;
        armci_meminfo_t there;
        armci_msg_snd(70, &told, sizeof told, previous_rank());
        armci_msg_rcv(70, &there, sizeof there, NULL, next);
        CHECK_EQUAL(ARMCI_PutValueLong(900 + me, there.armci_addr, next), 0);
        CHECK_EQUAL(ARMCI_PutValueLong(800 + me, (char *)ARMCI_Memat(&there, 8), next), 0);
        settle();
        CHECK_EQUAL(((long *)(void *)told.addr)[0], 900 + previous_rank());
        CHECK_EQUAL(((long *)(void *)told.addr)[1], 800 + previous_rank());
        armci_msg_barrier();
        for (int piece = 0; piece < PIECES; piece++) {
            ARMCI_Memctl(&infos[piece]);
            CHECK(infos[piece].armci_addr == NULL);
        }
    }
}

/* What is freed goes back to the system: memory that comes again is zeros, as when it came first. */
static void freed_pieces_take_no_memory(void)
{
    enum { LARGE_BYTES = 8 << 20, PAGE = 4096 };
    for (int round = 0; round < 3; round++) {
        armci_meminfo_t info;
        ARMCI_Memget(LARGE_BYTES, &info, 0);
        for (long place = PAGE; place < LARGE_BYTES - PAGE; place += PAGE) {
            CHECK_EQUAL(info.addr[place], 0);
        }
        memset(info.addr, 0xff, LARGE_BYTES);
        ARMCI_Memctl(&info);
    }
}

/* Pages that went back to the system while others were writing to them come again, and what is written then is found there. */
static void pages_that_come_again_are_written_from_afar(void)
{
    enum { WORDS = 4 << 10 };
    static long values[WORDS], copy[WORDS];
    int next = next_rank();
    for (int round = 0; round < 3; round++) {
        armci_meminfo_t mine, there;
        ARMCI_Memget(sizeof values, &mine, 0);
        armci_msg_snd(71, &mine, sizeof mine, previous_rank());
        armci_msg_rcv(71, &there, sizeof there, NULL, next);
        for (long word = 0; word < WORDS; word++) {
            values[word] = 1000000 * (round + 1) + 100000 * me + word;
        }
        /* Often enough that whoever prepares something at first use is done with that. */
        for (int time = 0; time < 4; time++) {
            CHECK_EQUAL(ARMCI_Put(values, there.armci_addr, sizeof values, next), 0);
            CHECK_EQUAL(ARMCI_Get(there.armci_addr, copy, sizeof copy, next), 0);
        }
        CHECK(memcmp(values, copy, sizeof values) == 0);
        settle();
        for (long word = 0; word < WORDS; word++) {
            CHECK_EQUAL(((long *)(void *)mine.addr)[word], 1000000 * (round + 1) + 100000 * previous_rank() + word);
        }
        armci_msg_barrier();
        ARMCI_Memctl(&mine);
    }
}

static void neighbours_can_follow_addresses(void)
{
    void *parts[RANKS_MAX];
    segment(parts, 8 * RANKS_MAX);
    for (int rank = 0; rank < ranks; rank++) {
        if (ARMCI_Same_node(rank)) {
            ((long *)parts[rank])[me] = 500 + me;
        } else {
            CHECK_EQUAL(ARMCI_PutValueLong(500 + me, at(parts[rank], 8 * me), rank), 0);
        }
    }
    settle();
    for (int rank = 0; rank < ranks; rank++) {
        CHECK_EQUAL(((long *)parts[me])[rank], 500 + rank);
    }
    free_segment(parts);
}
#endif

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    ARMCI_Set_shm_limit(1000000);
    parts_differ_in_size();
    some_have_no_bytes();
    nobody_has_bytes();
    segments_are_freed_in_any_order();
    memory_is_used_again();
    groups_have_segments();
    local_memory_is_memory();
#ifndef WITH_MPI
    named_kinds_of_memory_are_memory();
    one_process_makes_a_segment_alone();
    addresses_alone_are_enough();
    freed_pieces_take_no_memory();
    pages_that_come_again_are_written_from_afar();
    neighbours_can_follow_addresses();
    CHECK(ARMCI_Uses_shm() == 0 || ARMCI_Uses_shm() == 1);
#endif
    end("memory");
    return 0;
}
