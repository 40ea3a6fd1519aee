/*
 * Signals, threads and forks at the wrong moment. The first argument says which. "blocked": a thread that could not wait while
 * the variables move. "timer": a handler that counts in a variable, and "threads": the same beside a thread. "raise", "kill":
 * the signal of a fault is sent, which is the end. "since": a handler that was installed after the first init is still there
 * after the second. "fork": what the parent writes after it the child does not see.
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* What is counted while the rest moves, which takes a while. */
static struct {
    atomic_long count, ticks;
    char rest[32 << 20];
} moving;
/* Outside of the variables: how many handlers have begun, and how many have ended. */
static atomic_long *count;
static atomic_int is_over;
static volatile int variable;
static int from_parent[2];
static char untouched[256 << 20];
static sigjmp_buf before_fault;

static void handle(int number, void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(number, &action, NULL) == 0);
}

static void *tick(void *is_blocked)
{
    if (is_blocked != NULL) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
    }
    while (!is_over) {
        moving.ticks++;
    }
    return NULL;
}

static pthread_t start_ticking(void *is_blocked)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, tick, is_blocked) != 0) {
        exit(3);
    }
    while (moving.ticks == 0) {
    }
    return thread;
}

static void stop_ticking(pthread_t thread)
{
    const long then = moving.ticks;
    while (moving.ticks == then) {
    }
    is_over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

static void on_timer(int number)
{
    (void)number;
    atomic_fetch_add(&count[0], 1);
    atomic_fetch_add(&moving.count, 1);
    atomic_fetch_add(&count[1], 1);
}

static void timer(int with_threads)
{
    count = (atomic_long *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_t thread;
    if (with_threads) {
        thread = start_ticking(NULL);
    }
    handle(SIGALRM, on_timer);
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    begin();
    setitimer(ITIMER_REAL, &never, NULL);
    if (with_threads) {
        stop_ticking(thread);
    }
    handle(SIGALRM, SIG_IGN);
    /* A handler may run on a thread of the library, and be between the two. */
    while (count[1] != count[0]) {
    }
    CHECK_EQUAL(moving.count, count[0]);
    CHECK(count[0] > 0);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    siglongjmp(before_fault, 1);
}

/* Whether a fault that is the program's own comes to the program. */
static int has_fault(void)
{
    if (sigsetjmp(before_fault, 1) != 0) {
        return 1;
    }
    *(volatile int *)(intptr_t)variable = 1;
    return 0;
}

static void since(void)
{
    handle(SIGUSR1, on_timer);
    begin();
    struct sigaction action, found;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int life = 0; life < 3; life++) {
        CHECK(has_fault());
        shmem_finalize();
        begin();
        CHECK(sigaction(SIGSEGV, NULL, &found) == 0 && found.sa_sigaction == on_fault);
    }
    CHECK(has_fault());
}

/* Runs in the child, and was registered before init: what comes after it comes after what the parent writes. */
static void wait_for_parent(void)
{
    char byte;
    if (read(from_parent[0], &byte, 1) != 1) {
        _exit(7);
    }
}

static size_t resident(char *from, size_t bytes)
{
    static unsigned char pages[sizeof untouched / 4096];
    from += (4096 - (uintptr_t)from % 4096) % 4096;
    bytes = (bytes / 4096 - 1) * 4096;
    CHECK(mincore(from, bytes, pages) == 0);
    size_t count = 0;
    for (size_t i = 0; i < bytes / 4096; i++) {
        count += pages[i] & 1;
    }
    return count;
}

static void forks(void)
{
    CHECK(pipe(from_parent) == 0 && pthread_atfork(NULL, NULL, wait_for_parent) == 0);
    moving.rest[0] = 7;
    begin();
    shmem_char_p(&untouched[sizeof untouched / 2], 'x', next_pe());
    shmem_char_p(&moving.rest[sizeof moving.rest / 2], 'y', next_pe());
    shmem_barrier_all();
    for (int i = 0; i < 3; i++) {
        variable = 1;
        const pid_t child = fork();
        if (child == 0) {
            const int is_right = variable == 1 && untouched[sizeof untouched / 2] == 'x' && untouched[0] == 0 &&
                                 moving.rest[0] == 7 && moving.rest[sizeof moving.rest / 2] == 'y';
            variable = 3;
            _exit(is_right ? 5 : 6);
        }
        variable = 2;
        CHECK(write(from_parent[1], "", 1) == 1);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK_EQUAL(WEXITSTATUS(status), 5);
        CHECK_EQUAL(variable, 2);
    }
    struct sysinfo system;
    CHECK(sysinfo(&system) == 0);
    if (system.freeswap == system.totalswap) {
        CHECK(resident(untouched, sizeof untouched) < 2000);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    memset(moving.rest, 1, sizeof moving.rest);
    if (strcmp(what, "blocked") == 0) {
        pthread_t thread = start_ticking(&thread);
        begin();
        stop_ticking(thread);
    } else if (strcmp(what, "timer") == 0 || strcmp(what, "threads") == 0) {
        timer(strcmp(what, "threads") == 0);
    } else if (strcmp(what, "since") == 0) {
        since();
    } else if (strcmp(what, "fork") == 0) {
        forks();
    } else {
        pthread_t thread = start_ticking(NULL);
        begin();
        stop_ticking(thread);
        if (strcmp(what, "raise") == 0) {
            raise(SIGSEGV);
        } else {
            kill(getpid(), SIGSEGV);
        }
    }
    end("signals");
    return 0;
}
