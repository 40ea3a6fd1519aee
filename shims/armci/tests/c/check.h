/* What the test programs share: how a program begins, checks and ends, and patterns of bytes.
 *
 * With -DWITH_MPI a program starts by MPI, so that it can be run with another ARMCI as well. */
#ifndef LONGARM_TEST_CHECK_H
#define LONGARM_TEST_CHECK_H

#ifdef WITH_MPI
#include <mpi.h>
#endif

#include <armci.h>
#include <message.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No test needs more processes, unless whoever compiles it says so. */
#ifndef RANKS_MAX
#define RANKS_MAX 16
#endif
#define OPERATION(text) ((char *)(text))

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            check_failed(__FILE__, __LINE__, #condition, 0, 0);                                                        \
        }                                                                                                              \
    } while (0)

/* For integers; says what both were. */
#define CHECK_EQUAL(found, expected)                                                                                   \
    do {                                                                                                               \
        long long check_found_ = (long long)(found), check_expected_ = (long long)(expected);                          \
        if (check_found_ != check_expected_) {                                                                         \
            check_failed(__FILE__, __LINE__, #found " == " #expected, check_found_, check_expected_);                  \
        }                                                                                                              \
    } while (0)

static inline void check_failed(const char *file, int line, const char *text, long long found, long long expected)
{
    char message[1024];
    snprintf(message, sizeof message, "%s:%d: %s does not hold (%lld, %lld)", file, line, text, found, expected);
    ARMCI_Error(message, 1);
    abort();
}

/* Joins the job and starts ARMCI. */
static inline void begin(int *argc, char ***argv)
{
#ifdef WITH_MPI
    int provided;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
#else
    armci_msg_init(argc, argv);
#endif
    CHECK_EQUAL(ARMCI_Init(), 0);
    CHECK(armci_msg_nproc() <= RANKS_MAX);
}

/* All have come this far: says so and leaves the job. */
static inline void end(const char *name)
{
    ARMCI_Barrier();
    armci_msg_barrier();
    if (armci_msg_me() == 0) {
        printf("ok %s\n", name);
        fflush(stdout);
    }
    ARMCI_Finalize();
#ifdef WITH_MPI
    MPI_Finalize();
#else
    armci_msg_finalize();
#endif
}

static inline int next_rank(void)
{
    return (armci_msg_me() + 1) % armci_msg_nproc();
}

static inline int previous_rank(void)
{
    return (armci_msg_me() + armci_msg_nproc() - 1) % armci_msg_nproc();
}

/* Everything has arrived everywhere, and everybody knows. */
static inline void settle(void)
{
    ARMCI_AllFence();
    armci_msg_barrier();
}

static inline void *allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    CHECK(memory != NULL);
    return memory;
}

/* A segment with as many bytes at every process. */
static inline void segment(void **parts, size_t bytes)
{
    CHECK_EQUAL(ARMCI_Malloc(parts, (armci_size_t)bytes), 0);
    memset(parts[armci_msg_me()], 0, bytes);
    armci_msg_barrier();
}

static inline void free_segment(void **parts)
{
    settle();
    CHECK_EQUAL(ARMCI_Free(parts[armci_msg_me()]), 0);
}

static inline char *at(void *start, long offset)
{
    return (char *)start + offset;
}

/* Byte `index` of the pattern with this seed. */
static inline unsigned char pattern(unsigned seed, size_t index)
{
    unsigned long long word = (index + 1) * 0x9e3779b97f4a7c15ULL + seed * 0xbf58476d1ce4e5b9ULL;
    word ^= word >> 29;
    return (unsigned char)(word >> 13);
}

static inline void fill(void *memory, unsigned seed, size_t bytes)
{
    unsigned char *out = (unsigned char *)memory;
    for (size_t index = 0; index < bytes; index++) {
        out[index] = pattern(seed, index);
    }
}

/* Whether all bytes are those of a pattern. */
static inline int is_filled(const void *memory, unsigned seed, size_t bytes)
{
    const unsigned char *in = (const unsigned char *)memory;
    for (size_t index = 0; index < bytes; index++) {
        if (in[index] != pattern(seed, index)) {
            return 0;
        }
    }
    return 1;
}

static inline int is_all(const void *memory, unsigned char value, size_t bytes)
{
    const unsigned char *in = (const unsigned char *)memory;
    for (size_t index = 0; index < bytes; index++) {
        if (in[index] != value) {
            return 0;
        }
    }
    return 1;
}

/* Numbers that look random and are the same everywhere. */
static inline unsigned draw(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

#endif
