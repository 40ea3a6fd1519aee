/*
 * Every family of calls on global and static variables, however they are reached. The first argument says what the system
 * refuses before init: "mremap", so that the variables cannot be shared; "attach", that as well and processes cannot read each
 * other; "odd", mremap at PEs of odd number only. "fault" and "page" write where nothing can be written, which is the end. Any
 * other, or none: nothing.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 60000
#define ROUNDS 100

static int initialised = 17;
static int words[8];
static short narrow;
static char letter;
static long counters[PES_MAX];
static double fraction = 0.5;
static char bulk[1 << 20];
static int table[2 * MANY], copies[PES_MAX * 1000], shares[PES_MAX * 1000], sums[MANY], addends[MANY];
static uint64_t signal_word;
static long lock, guarded;
static int flag;
static char untouched[256 << 20];

/* What is written to while the rest of it moves, which takes a while. */
static struct {
    volatile long ticks, lost;
    char rest[32 << 20];
} moving;
static volatile int is_over;

/* Runs while the variables move, and looks whether what it has written stays written. */
static void *tick(void *nothing)
{
    for (long tick = 1; !is_over; tick++) {
        moving.ticks = tick;
        for (int i = 0; i < 10; i++) {
            if (moving.ticks != tick) {
                moving.lost = moving.lost + 1;
            }
        }
    }
    return nothing;
}

static void refuse(int with_attaching)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, with_attaching ? SYS_process_vm_readv : SYS_mremap, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, with_attaching ? SYS_process_vm_writev : SYS_mremap, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        perror("seccomp");
        exit(3);
    }
}

static void puts_and_gets(void)
{
    const int next = next_pe(), previous = previous_pe();
    CHECK_EQUAL(shmem_int_g(&initialised, next), 17);
    shmem_int_p(&words[0], me + 100, next);
    shmem_short_p(&narrow, (short)(me + 1), next);
    shmem_char_p(&letter, (char)('a' + me), next);
    shmem_double_p(&fraction, me + 0.25, next);
    static char source[sizeof bulk - 3];
    memset(source, me + 1, sizeof source);
    shmem_putmem(bulk + 1, source, sizeof source, next);
    shmem_barrier_all();
    CHECK_EQUAL(words[0], previous + 100);
    CHECK_EQUAL(narrow, previous + 1);
    CHECK_EQUAL(letter, 'a' + previous);
    CHECK(fraction == previous + 0.25);
    CHECK(bulk[0] == 0 && bulk[1] == previous + 1 && bulk[sizeof bulk - 3] == previous + 1 && bulk[sizeof bulk - 2] == 0);
    char *back = (char *)malloc(sizeof bulk);
    shmem_getmem_nbi(back, bulk, sizeof bulk, next);
    shmem_quiet();
    CHECK(back[0] == 0 && back[1] == me + 1 && back[sizeof bulk / 2] == me + 1 && back[sizeof bulk - 2] == 0);
    free(back);
    shmem_barrier_all();
    int column[100];
    for (int i = 0; i < 100; i++) {
        column[i] = 1000 * me + i;
    }
    shmem_int_iput(table + 1, column, 3, 1, 100, next);
    shmem_int_put_nbi(table + 1000, column, 100, next);
    shmem_barrier_all();
    for (int i = 0; i < 100; i++) {
        CHECK_EQUAL(table[1 + 3 * i], 1000 * previous + i);
        CHECK_EQUAL(table[2 + 3 * i], 0);
        CHECK_EQUAL(table[1000 + i], 1000 * previous + i);
    }
    int row[200];
    shmem_int_iget(row, table + 1, 2, 3, 100, next);
    for (int i = 0; i < 100; i++) {
        CHECK_EQUAL(row[2 * i], 1000 * me + i);
    }
    shmem_putmem(untouched + sizeof untouched - 1, "x", 1, next);
    shmem_barrier_all();
    CHECK(untouched[sizeof untouched - 1] == 'x' && untouched[sizeof untouched / 2] == 0);
}

static void atomics(void)
{
    /* Everybody, the owner too. */
    for (int i = 0; i < ROUNDS; i++) {
        shmem_long_atomic_inc(&counters[0], 0);
        shmem_int_atomic_add(&words[1], 2, pes - 1);
        CHECK(shmem_long_atomic_fetch_add(&counters[1], 3, 0) % 3 == 0);
    }
    shmem_barrier_all();
    if (me == 0) {
        CHECK_EQUAL(counters[0], (long)ROUNDS * pes);
        CHECK_EQUAL(counters[1], 3L * ROUNDS * pes);
    }
    if (me == pes - 1) {
        CHECK_EQUAL(words[1], 2 * ROUNDS * pes);
    }
    shmem_barrier_all();
    /* One word of each pair of neighbours, one after another. */
    CHECK_EQUAL(shmem_long_atomic_swap(&counters[2], me + 5, next_pe()), 0);
    CHECK_EQUAL(shmem_long_atomic_compare_swap(&counters[2], me + 6, 1, next_pe()), me + 5);
    CHECK_EQUAL(shmem_long_atomic_compare_swap(&counters[2], me + 5, 9, next_pe()), me + 5);
    CHECK_EQUAL(shmem_long_atomic_fetch(&counters[2], next_pe()), 9);
    shmem_long_atomic_set(&counters[2], 12, next_pe());
    unsigned int bits = shmem_uint_atomic_fetch_or((unsigned int *)&words[2], 6, next_pe());
    CHECK_EQUAL(bits, 0);
    shmem_uint_atomic_xor((unsigned int *)&words[2], 3, next_pe());
    shmem_uint_atomic_and((unsigned int *)&words[2], 13, next_pe());
    shmem_barrier_all();
    CHECK_EQUAL(counters[2], 12);
    CHECK_EQUAL(words[2], 5);
    CHECK(shmem_double_atomic_swap(&fraction, 3.5, me) != 3.5 && fraction == 3.5);
}

static void waiting(void)
{
    /* A token goes round, by put, by atomic, and by signal. */
    for (int round = 1; round <= 5; round++) {
        if (me == 0) {
            shmem_int_p(&flag, round, next_pe());
        }
        shmem_int_wait_until(&flag, SHMEM_CMP_GE, round);
        if (me != 0) {
            shmem_int_p(&flag, round, next_pe());
        }
    }
    shmem_barrier_all();
    long *heap = (long *)shmem_calloc(1000, sizeof(long));
    uint64_t *heap_signal = (uint64_t *)shmem_calloc(1, sizeof(uint64_t));
    long data[1000];
    for (int i = 0; i < 1000; i++) {
        data[i] = me * 1000 + i;
    }
    shmem_long_put_signal(heap, data, 1000, &signal_word, 1, SHMEM_SIGNAL_ADD, next_pe());
    CHECK_EQUAL(shmem_signal_wait_until(&signal_word, SHMEM_CMP_EQ, 1), 1);
    CHECK_EQUAL(heap[999], previous_pe() * 1000 + 999);
    shmem_long_put_signal((long *)(void *)(bulk + 64), data, 1000, heap_signal, 7, SHMEM_SIGNAL_SET, next_pe());
    CHECK_EQUAL(shmem_signal_wait_until(heap_signal, SHMEM_CMP_EQ, 7), 7);
    CHECK_EQUAL(((long *)(void *)(bulk + 64))[999], previous_pe() * 1000 + 999);
    shmem_barrier_all();
    /* What was put into the heap before a fence is there when a variable is seen that was written behind it. */
    data[999] = -1 - me;
    shmem_long_put_nbi(heap, data, 1000, next_pe());
    shmem_fence();
    shmem_int_atomic_set(&words[3], 1, next_pe());
    shmem_int_wait_until(&words[3], SHMEM_CMP_EQ, 1);
    CHECK_EQUAL(heap[999], -1 - previous_pe());
    shmem_quiet();
    shmem_barrier_all();
    /* Updates that fetch nothing, in a context: ordered by its fence, complete after its quiet. */
    shmem_ctx_t context;
    CHECK_EQUAL(shmem_ctx_create(0, &context), 0);
    heap[0] = heap[1] = 0;
    shmem_barrier_all();
    for (int i = 0; i < 500; i++) {
        shmem_ctx_long_atomic_inc(context, &heap[0], next_pe());
        shmem_ctx_long_atomic_add(context, &heap[1], 2, pes - 1);
    }
    shmem_ctx_fence(context);
    shmem_ctx_int_atomic_set(context, &words[3], 2, next_pe());
    shmem_int_wait_until(&words[3], SHMEM_CMP_EQ, 2);
    CHECK_EQUAL(heap[0], 500);
    shmem_ctx_quiet(context);
    shmem_sync_all();
    CHECK_EQUAL(shmem_long_g(&heap[1], pes - 1), 1000L * pes);
    shmem_ctx_destroy(context);
    for (int i = 0; i < 10; i++) {
        shmem_set_lock(&lock);
        const long seen = shmem_long_g(&guarded, 0);
        shmem_long_p(&guarded, seen + 1, 0);
        shmem_quiet();
        shmem_clear_lock(&lock);
    }
    shmem_barrier_all();
    CHECK_EQUAL(shmem_long_g(&guarded, 0), 10L * pes);
    shmem_barrier_all();
    shmem_free(heap_signal);
    shmem_free(heap);
}

static void collectives(shmem_team_t team)
{
    const int size = shmem_team_n_pes(team), place = shmem_team_my_pe(team);
    if (size < 1) {
        return;
    }
    for (int count = 1; count <= 1000; count += 999) {
        for (int i = 0; i < PES_MAX * 1000; i++) {
            copies[i] = place * 100000 + i;
            shares[i] = -1;
        }
        shmem_team_sync(team);
        CHECK_EQUAL(shmem_int_fcollect(team, shares, copies, (size_t)count), 0);
        for (int from = 0; from < size; from++) {
            CHECK_EQUAL(shares[from * count], from * 100000);
            CHECK_EQUAL(shares[from * count + count - 1], from * 100000 + count - 1);
        }
        CHECK_EQUAL(shmem_int_alltoall(team, shares, copies, (size_t)count), 0);
        for (int from = 0; from < size; from++) {
            CHECK_EQUAL(shares[from * count], from * 100000 + place * count);
        }
        CHECK_EQUAL(shmem_int_broadcast(team, shares, copies, (size_t)count, size - 1), 0);
        CHECK_EQUAL(shares[count - 1], (size - 1) * 100000 + count - 1);
        CHECK_EQUAL(shmem_int_collect(team, shares, copies, (size_t)(place % 2 == 0 ? count : 0)), 0);
        CHECK_EQUAL(shares[(size - 1) / 2 * count], (size - 1) / 2 * 2 * 100000);
        shmem_team_sync(team);
    }
    for (int count = 1; count <= MANY; count += MANY - 1) {
        for (int i = 0; i < count; i++) {
            addends[i] = place + i;
        }
        CHECK_EQUAL(shmem_int_sum_reduce(team, sums, addends, (size_t)count), 0);
        CHECK_EQUAL(sums[count - 1], size * (size - 1) / 2 + size * (count - 1));
        CHECK_EQUAL(shmem_int_max_reduce(team, addends, addends, (size_t)count), 0);
        CHECK_EQUAL(addends[count - 1], size - 1 + count - 1);
        shmem_team_sync(team);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "nothing", *rank = getenv("LONGARM_RANK");
    const int is_odd = strcmp(what, "odd") == 0, with_attaching = strcmp(what, "attach") == 0;
    if (strcmp(what, "mremap") == 0 || with_attaching || (is_odd && rank != NULL && atoi(rank) % 2 == 1)) {
        refuse(with_attaching);
    }
    memset(moving.rest, 1, sizeof moving.rest);
    pthread_t thread;
    if (pthread_create(&thread, NULL, tick, NULL) != 0) {
        return 4;
    }
    while (moving.ticks == 0) {
    }
    begin();
    const long then = moving.ticks;
    while (moving.ticks == then) {
    }
    is_over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_EQUAL(moving.lost, 0);
    CHECK(moving.rest[sizeof moving.rest - 1] == 1);
    if (strcmp(what, "fault") == 0) {
        *(volatile int *)(intptr_t)(argc - 2) = 1;
    }
    if (strcmp(what, "page") == 0) {
        char *page = untouched + 8192 - (uintptr_t)untouched % 4096;
        CHECK(mprotect(page, 4096, PROT_READ) == 0);
        *(volatile char *)page = 1;
    }
    /* What stays where it is has no pointer. */
    const int stays = is_odd ? next_pe() % 2 == 1 : argc > 2 && strcmp(argv[2], "stays") == 0;
    const int is_near = shmem_ptr(shmem_malloc(8), next_pe()) != NULL;
    CHECK_EQUAL(shmem_ptr(&flag, next_pe()) != NULL, next_pe() == me || (is_near && !stays));
    CHECK(shmem_ptr(&flag, me) == &flag && shmem_addr_accessible(&flag, next_pe()));
    shmem_barrier_all();
    puts_and_gets();
    shmem_barrier_all();
    atomics();
    shmem_barrier_all();
    waiting();
    collectives(SHMEM_TEAM_WORLD);
    collectives(SHMEM_TEAM_SHARED);
    shmem_team_t odd = SHMEM_TEAM_INVALID;
    if (pes > 2) {
        CHECK_EQUAL(shmem_team_split_strided(SHMEM_TEAM_WORLD, 1, 2, pes / 2, NULL, 0, &odd), 0);
        collectives(odd);
    }
    shmem_barrier_all();
#ifndef IN_ONE_FILE
    const pid_t child = fork();
    if (child == 0) {
        flag = 99;
        _exit(flag == 99 ? 5 : 6);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5 && flag != 99);
#endif
    end("statics");
    return 0;
}
