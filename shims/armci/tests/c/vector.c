/* Vector transfers: several descriptors, places in several segments, and lists of every length. */
#include "check.h"

enum { PLACES = 200, SEGMENTS = 3, SEGMENT_BYTES = 1 << 16 };

static int me, ranks;
static void *parts[SEGMENTS][RANKS_MAX];

/* The part of a segment that belongs to an origin. */
static char *region_of(int which, int target, int origin)
{
    return at(parts[which][target], (long)origin * (SEGMENT_BYTES / RANKS_MAX));
}

static armci_giov_t list_of(void **sources, void **targets, int length, int bytes)
{
    armci_giov_t list;
    list.src_ptr_array = sources;
    list.dst_ptr_array = targets;
    list.ptr_array_len = length;
    list.bytes = bytes;
    return list;
}

/* Pairs of one size, all in one segment, in an order that is not that of their addresses. */
static void one_list(int target, int length, int bytes)
{
    void *here[PLACES], *there[PLACES], *back[PLACES];
    char *source = (char *)allocate((size_t)(length * bytes)), *copy = (char *)allocate((size_t)(length * bytes));
    fill(source, (unsigned)(me + length), (size_t)(length * bytes));
    memset(copy, 0, (size_t)(length * bytes));
    for (int place = 0; place < length; place++) {
        int other = (place * 7) % length;
        /* Coprime with 7 or not: where it is not, go straight. */
        if (length % 7 == 0) {
            other = place;
        }
        here[place] = source + place * bytes;
        back[place] = copy + place * bytes;
        there[place] = region_of(0, target, me) + other * (bytes + 1);
    }
    CHECK(length * (bytes + 1) <= SEGMENT_BYTES / RANKS_MAX);
    armci_giov_t put = list_of(here, there, length, bytes), get = list_of(there, back, length, bytes);
    CHECK_EQUAL(ARMCI_PutV(&put, 1, target), 0);
    CHECK_EQUAL(ARMCI_GetV(&get, 1, target), 0);
    CHECK(memcmp(source, copy, (size_t)(length * bytes)) == 0);
    free(source);
    free(copy);
}

/* Three descriptors of different sizes, whose places lie in three segments. */
static void several_lists_of_several_segments(int target)
{
    void *here[SEGMENTS][PLACES], *there[SEGMENTS][PLACES], *back[SEGMENTS][PLACES];
    static char source[SEGMENTS][PLACES * 16], copy[SEGMENTS][PLACES * 16];
    armci_giov_t put[SEGMENTS], get[SEGMENTS];
    int length = 90;
    memset(copy, 0, sizeof copy);
    for (int list = 0; list < SEGMENTS; list++) {
        int bytes = 4 + 4 * list;
        fill(source[list], (unsigned)(me * 5 + list), sizeof source[list]);
        for (int place = 0; place < length; place++) {
            /* Neighbours in the list are in different segments. */
            int which = (place + list) % SEGMENTS;
            here[list][place] = source[list] + place * bytes;
            back[list][place] = copy[list] + place * bytes;
            there[list][place] = region_of(which, target, me) + list * 1200 + place / SEGMENTS * bytes;
        }
        put[list] = list_of(here[list], there[list], length, bytes);
        get[list] = list_of(there[list], back[list], length, bytes);
    }
    CHECK_EQUAL(ARMCI_PutV(put, SEGMENTS, target), 0);
    CHECK_EQUAL(ARMCI_GetV(get, SEGMENTS, target), 0);
    for (int list = 0; list < SEGMENTS; list++) {
        CHECK(memcmp(source[list], copy[list], (size_t)(length * (4 + 4 * list))) == 0);
    }
    ARMCI_Fence(target);
}

/* A get may gather from one place many times, and a put may send one source to many. */
static void places_are_repeated(int target)
{
    long value = 4711 + me, copies[50];
    void *here[50], *there[50], *back[50];
    for (int place = 0; place < 50; place++) {
        here[place] = &value;
        there[place] = region_of(1, target, me) + 8 * place;
        back[place] = &copies[place];
    }
    armci_giov_t put = list_of(here, there, 50, sizeof value);
    CHECK_EQUAL(ARMCI_PutV(&put, 1, target), 0);
    memset(copies, 0, sizeof copies);
    for (int place = 0; place < 50; place++) {
        there[place] = region_of(1, target, me) + 8 * 49;
    }
    armci_giov_t get = list_of(there, back, 50, sizeof value);
    CHECK_EQUAL(ARMCI_GetV(&get, 1, target), 0);
    for (int place = 0; place < 50; place++) {
        CHECK_EQUAL(copies[place], 4711 + me);
    }
    /* Of several sources for one place one wins, whole. */
    long many[50];
    for (int place = 0; place < 50; place++) {
        many[place] = 0x0101010101010101L * (place + 1);
        here[place] = &many[place];
    }
    put = list_of(here, there, 50, sizeof value);
    CHECK_EQUAL(ARMCI_PutV(&put, 1, target), 0);
    long winner = ARMCI_GetValueLong(there[0], target);
    CHECK(winner % 0x0101010101010101L == 0 && winner / 0x0101010101010101L >= 1 &&
          winner / 0x0101010101010101L <= 50);
}

static void nonblocking_lists(int target)
{
    static long source[PLACES], copy[PLACES];
    void *here[PLACES], *there[PLACES], *back[PLACES];
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    for (int place = 0; place < PLACES; place++) {
        source[place] = me * 1000 + place;
        here[place] = &source[place];
        there[place] = region_of(place % SEGMENTS, target, me) + 8 * place;
        back[place] = &copy[place];
    }
    armci_giov_t put = list_of(here, there, PLACES, sizeof(long)), get = list_of(there, back, PLACES, sizeof(long));
    CHECK_EQUAL(ARMCI_NbPutV(&put, 1, target, &handle), 0);
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    ARMCI_Fence(target);
    CHECK_EQUAL(ARMCI_NbGetV(&get, 1, target, &handle), 0);
    /* The lists may be reused at once. */
    memset(back, 0, sizeof back);
    CHECK_EQUAL(ARMCI_Wait(&handle), 0);
    CHECK(memcmp(source, copy, sizeof source) == 0);
    /* The same with implicit handles. */
    memset(copy, 0, sizeof copy);
    for (int place = 0; place < PLACES; place++) {
        back[place] = &copy[place];
    }
    CHECK_EQUAL(ARMCI_NbGetV(&get, 1, target, NULL), 0);
    CHECK_EQUAL(ARMCI_WaitAll(), 0);
    CHECK(memcmp(source, copy, sizeof source) == 0);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    for (int which = 0; which < SEGMENTS; which++) {
        segment(parts[which], SEGMENT_BYTES);
    }
    for (int target = 0; target < ranks; target++) {
        const int sizes[] = {1, 3, 4, 8, 12, 16};
        for (int which = 0; which < 6; which++) {
            one_list(target, 1, sizes[which]);
            one_list(target, 2, sizes[which]);
            one_list(target, 33, sizes[which]);
            one_list(target, PLACES, sizes[which]);
        }
        one_list(target, 4, 1000);
        several_lists_of_several_segments(target);
        places_are_repeated(target);
        nonblocking_lists(target);
    }
    for (int which = 0; which < SEGMENTS; which++) {
        free_segment(parts[which]);
    }
    end("vector");
    return 0;
}
