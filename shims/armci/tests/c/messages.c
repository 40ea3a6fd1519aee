/* Messages, broadcasts, selection, addresses, trees. Reductions have a program of their own. */
#include "check.h"

static int me, ranks;

static const int lengths[] = {0, 1, 7, 8, 100, 4096, 5000, 65536, 1000001};
enum { LENGTHS = sizeof lengths / sizeof lengths[0], LONGEST = 1000001 };

static void messages_go_round(char *out, char *in)
{
    for (int which = 0; which < LENGTHS; which++) {
        for (int distance = 0; distance < ranks; distance++) {
            int to = (me + distance) % ranks, from = (me + ranks - distance) % ranks, length = -1;
            fill(out, (unsigned)(me * 50 + which), (size_t)lengths[which]);
            if (distance == 0) {
                continue;
            }
            /* Blocking sends need not wait, but may: pairs take turns. */
            if (me < to) {
                armci_msg_snd(which + 1, out, lengths[which], to);
            }
            armci_msg_rcv(which + 1, in, LONGEST, &length, from);
            if (me >= to) {
                armci_msg_snd(which + 1, out, lengths[which], to);
            }
            CHECK_EQUAL(length, lengths[which]);
            CHECK(is_filled(in, (unsigned)(from * 50 + which), (size_t)length));
        }
    }
}

#ifndef WITH_MPI
/* A message to oneself waits until it is received. */
static void messages_to_oneself(void)
{
    int sent = 5, got = 0, length = 0;
    armci_msg_snd(3, &sent, sizeof sent, me);
    armci_msg_rcv(3, &got, sizeof got, &length, me);
    CHECK_EQUAL(got, 5);
    CHECK_EQUAL(length, 4);
    armci_msg_snd(3, &sent, sizeof sent, me);
    armci_msg_rcv(3, &got, sizeof got, NULL, me);
}
#endif

/* Tags tell messages apart, whatever the order in which they were sent. */
static void tags_are_told_apart(void)
{
    int next = next_rank(), previous = previous_rank();
    if (ranks == 1) {
        return;
    }
    for (int tag = 1; tag <= 5; tag++) {
        int value = tag * 100 + me;
        armci_msg_snd(tag, &value, sizeof value, next);
    }
    for (int tag = 5; tag >= 1; tag--) {
        int value = 0, length = 0;
        armci_msg_rcv(tag, &value, sizeof value, &length, previous);
        CHECK_EQUAL(value, tag * 100 + previous);
    }
    /* Of one tag they come in order. */
    for (int number = 0; number < 20; number++) {
        armci_msg_snd(9, &number, sizeof number, next);
    }
    for (int number = 0; number < 20; number++) {
        int value = -1, length = 0;
        armci_msg_rcv(9, &value, sizeof value, &length, previous);
        CHECK_EQUAL(value, number);
    }
    armci_msg_barrier();
}

/* Whoever comes first. */
static void messages_of_anybody(void)
{
    if (me == 0) {
        int seen[RANKS_MAX];
        memset(seen, 0, sizeof seen);
        for (int count = 1; count < ranks; count++) {
            int value = -1, length = 0;
            int from = armci_msg_rcvany(11, &value, sizeof value, &length);
            CHECK(from > 0 && from < ranks && !seen[from]);
            CHECK_EQUAL(value, from * 3);
            CHECK_EQUAL(length, (int)sizeof value);
            seen[from] = 1;
        }
    } else {
        int value = me * 3;
        armci_msg_snd(11, &value, sizeof value, 0);
    }
    armci_msg_barrier();
}

/* Of messages from several, each is taken once, and those of one sender in their order. */
static void nobody_is_passed_over(void)
{
    int value = 0, from = -1;
    if (ranks < 3 || !ARMCI_Same_node(0) || !ARMCI_Same_node(1) || !ARMCI_Same_node(2)) {
        return;
    }
    if (me == 1 || me == 2) {
        for (value = 0; value < 2; value++) {
            armci_msg_snd(12, &value, sizeof value, 0);
        }
        value = 0;
        armci_msg_snd(14, &value, sizeof value, 0);
    } else if (me == 0) {
        /* All of them are here before the first one is taken. */
        armci_msg_rcv(14, &value, sizeof value, NULL, 1);
        armci_msg_rcv(14, &value, sizeof value, NULL, 2);
        int last[3] = {-1, -1, -1};
        for (int message = 0; message < 4; message++) {
            from = armci_msg_rcvany(12, &value, sizeof value, NULL);
            CHECK(from == 1 || from == 2);
            CHECK_EQUAL(value, last[from] + 1);
            last[from] = value;
        }
        CHECK_EQUAL(last[1], 1);
        CHECK_EQUAL(last[2], 1);
    }
}

static void broadcasts(char *buffer)
{
    for (int which = 0; which < LENGTHS; which++) {
        for (int root = 0; root < ranks; root++) {
            unsigned seed = (unsigned)(which * 10 + root);
            size_t length = (size_t)lengths[which];
            memset(buffer, 0, length + 1);
            if (me == root) {
                fill(buffer, seed, length);
            }
            if (which % 3 == 0) {
                armci_msg_bcast(buffer, (int)length, root);
            } else if (which % 3 == 1) {
                armci_msg_brdcst(buffer, (int)length, root);
            } else {
                armci_msg_bcast_scope(SCOPE_ALL, buffer, (int)length, root);
            }
            CHECK(is_filled(buffer, seed, length));
            CHECK_EQUAL(buffer[length], 0);
        }
    }
}

/* From the first of each node to its node, and from the first of all to the first of each node. */
static void broadcasts_of_scopes(void)
{
    int node = armci_domain_my_id(ARMCI_DOMAIN_SMP);
    int master = armci_domain_glob_proc_id(ARMCI_DOMAIN_SMP, node, 0), value;
    value = me == 0 ? 77 : -me;
    armci_msg_bcast_scope(SCOPE_MASTERS, &value, sizeof value, 0);
    if (me == master) {
        CHECK_EQUAL(value, 77);
    } else {
        CHECK_EQUAL(value, -me);
    }
    value = me == master ? 900 + node : -1;
    armci_msg_bcast_scope(SCOPE_NODE, &value, sizeof value, master);
    CHECK_EQUAL(value, 900 + node);
#ifndef WITH_MPI
    value = me == master ? 500 + node : -1;
    armci_msg_clus_brdcst(&value, sizeof value);
    CHECK_EQUAL(value, 500 + node);
#endif
    armci_msg_barrier();
}

/* The bytes behind the best number go with it. */
typedef struct {
    int key;
    int owner;
    double rest[20];
} choice_t;

static void selections(void)
{
    for (int round = 0; round < 8; round++) {
        int largest = round % 2 == 0, wanted = (round / 2) % ranks;
        choice_t choice;
        choice.key = me == wanted ? (largest ? 1000 : -1000) : me;
        choice.owner = me;
        for (int index = 0; index < 20; index++) {
            choice.rest[index] = me + index;
        }
        armci_msg_sel(&choice, sizeof choice, OPERATION(largest ? "max" : "min"), ARMCI_INT, 1);
        CHECK_EQUAL(choice.owner, wanted);
        CHECK_EQUAL(choice.key, largest ? 1000 : -1000);
        CHECK_EQUAL(choice.rest[19], wanted + 19);
    }
    /* Only some contribute. */
    struct {
        double key;
        long owner;
    } pair;
    int contributes = me == ranks - 1 || me == 0;
    pair.key = me == 0 ? 5 : me == ranks - 1 ? 6 : 100;
    pair.owner = me;
    armci_msg_sel_scope(SCOPE_ALL, &pair, sizeof pair, OPERATION("max"), ARMCI_DOUBLE, contributes);
    CHECK_EQUAL(pair.owner, ranks - 1);
    armci_msg_barrier();
}

/* An address that nobody follows. */
static void *number_as_address(int number)
{
    return (void *)(size_t)number;
}

static void addresses_are_exchanged(void)
{
    void *table[RANKS_MAX];
    memset(table, 0, sizeof table);
    table[me] = number_as_address(4096 * (me + 1));
    armci_exchange_address(table, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        CHECK(table[rank] == number_as_address(4096 * (rank + 1)));
    }
    ARMCI_Group world;
    ARMCI_Group_get_world(&world);
    memset(table, 0, sizeof table);
    table[me] = number_as_address(64 * (me + 1));
    armci_exchange_address_grp(table, ranks, &world);
    for (int rank = 0; rank < ranks; rank++) {
        CHECK(table[rank] == number_as_address(64 * (rank + 1)));
    }
}

/* Everybody but the root hangs below one other. */
static void trees(int scope)
{
    int root = -2, up = -2, left = -2, right = -2;
    armci_msg_bintree(scope, &root, &up, &left, &right);
    int links[RANKS_MAX], all[RANKS_MAX];
    memset(links, 0, sizeof links);
    if (left >= 0) {
        links[left]++;
    }
    if (right >= 0) {
        links[right]++;
    }
    memcpy(all, links, sizeof all);
    armci_msg_igop(all, ranks, OPERATION("+"));
    if (root == me) {
        CHECK_EQUAL(up, -1);
        CHECK_EQUAL(all[me], 0);
    } else if (up >= 0) {
        CHECK_EQUAL(all[me], 1);
    }
    if (scope == SCOPE_ALL) {
        CHECK_EQUAL(root, 0);
        CHECK(me == root || up >= 0);
    }
    armci_msg_barrier();
}

#ifndef WITH_MPI
static void groups_send_too(void)
{
    int half = (ranks + 1) / 2, low = me < half, list[RANKS_MAX], members = 0;
    for (int rank = low ? 0 : half; rank < (low ? half : ranks); rank++) {
        list[members++] = rank;
    }
    ARMCI_Group group;
    ARMCI_Group_create(members, list, &group);
    for (int place = 0; place < members; place++) {
        /* Roots are numbers of the world. */
        int value = list[place] == me ? 1234 + me : 0;
        armci_msg_group_bcast_scope(SCOPE_ALL, &value, sizeof value, list[place], &group);
        CHECK_EQUAL(value, 1234 + list[place]);
    }
    int node = armci_domain_my_id(ARMCI_DOMAIN_SMP), first = -1;
    for (int place = members - 1; place >= 0; place--) {
        if (armci_domain_id(ARMCI_DOMAIN_SMP, list[place]) == node) {
            first = list[place];
        }
    }
    int value = me == first ? me : -1;
    armci_msg_group_bcast_scope(SCOPE_NODE, &value, sizeof value, first, &group);
    CHECK_EQUAL(value, first);
    /* The members from one on, by their place. */
    value = list[members - 1] == me ? 31 : 0;
    int place = -1;
    CHECK_EQUAL(ARMCI_Group_rank(&group, &place), 0);
    if (place == members - 1) {
        armci_grp_clus_brdcst(&value, sizeof value, members - 1, 1, &group);
    }
    value = place == 0 ? 17 + low : 0;
    armci_grp_clus_brdcst(&value, sizeof value, 0, members, &group);
    CHECK_EQUAL(value, 17 + low);
    void *table[RANKS_MAX];
    memset(table, 0, sizeof table);
    table[place] = number_as_address(8 * (me + 1));
    armci_exchange_address_grp(table, members, &group);
    for (int other = 0; other < members; other++) {
        CHECK(table[other] == number_as_address(8 * (list[other] + 1)));
    }
    armci_msg_group_barrier(&group);
    ARMCI_Group_free(&group);
    armci_msg_barrier();
}
#endif

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    me = armci_msg_me();
    ranks = armci_msg_nproc();
    char *out = (char *)allocate(LONGEST + 1), *in = (char *)allocate(LONGEST + 1);
    messages_go_round(out, in);
    tags_are_told_apart();
    messages_of_anybody();
    nobody_is_passed_over();
    broadcasts(in);
    selections();
    addresses_are_exchanged();
    trees(SCOPE_ALL);
#ifndef WITH_MPI
    messages_to_oneself();
    broadcasts_of_scopes();
    trees(SCOPE_NODE);
    trees(SCOPE_MASTERS);
    groups_send_too();
#endif
    free(out);
    free(in);
    end("messages");
    return 0;
}
