/* What the test programs share: how a program checks and ends, and the lists of types. */
#ifndef LONGARM_SHMEM_TEST_CHECK_H
#define LONGARM_SHMEM_TEST_CHECK_H

#include <shmem.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No test needs more PEs. */
#define PES_MAX 16

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: PE %d: %s does not hold\n", __FILE__, __LINE__, shmem_my_pe(), #condition);                 \
            fflush(stdout);                                                                                            \
            shmem_global_exit(1);                                                                                      \
        }                                                                                                              \
    } while (0)

/* For integers; says what both were. */
#define CHECK_EQUAL(found, expected)                                                                                   \
    do {                                                                                                               \
        long long check_found_ = (long long)(found), check_expected_ = (long long)(expected);                          \
        if (check_found_ != check_expected_) {                                                                         \
            printf("%s:%d: PE %d: %s is %lld and not %lld\n", __FILE__, __LINE__, shmem_my_pe(), #found, check_found_,  \
                   check_expected_);                                                                                   \
            fflush(stdout);                                                                                            \
            shmem_global_exit(1);                                                                                      \
        }                                                                                                              \
    } while (0)

#define RMA_TYPES(X)                                                                                                   \
    X(float, float) X(double, double) X(longdouble, long double) X(char, char) X(schar, signed char) X(short, short)   \
    X(int, int) X(long, long) X(longlong, long long) X(uchar, unsigned char) X(ushort, unsigned short)                 \
    X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long) X(int8, int8_t) X(int16, int16_t)   \
    X(int32, int32_t) X(int64, int64_t) X(uint8, uint8_t) X(uint16, uint16_t) X(uint32, uint32_t) X(uint64, uint64_t)  \
    X(size, size_t) X(ptrdiff, ptrdiff_t)

#define AMO_TYPES(X)                                                                                                   \
    X(int, int) X(long, long) X(longlong, long long) X(uint, unsigned int) X(ulong, unsigned long)                     \
    X(ulonglong, unsigned long long) X(int32, int32_t) X(int64, int64_t) X(uint32, uint32_t) X(uint64, uint64_t)       \
    X(size, size_t) X(ptrdiff, ptrdiff_t)

#define EXTENDED_TYPES(X) X(float, float) X(double, double) AMO_TYPES(X)

#define BITWISE_TYPES(X)                                                                                               \
    X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long) X(int32, int32_t) X(int64, int64_t) \
    X(uint32, uint32_t) X(uint64, uint64_t)

#define REDUCE_BITS_TYPES(X)                                                                                           \
    X(uchar, unsigned char) X(ushort, unsigned short) X(uint, unsigned int) X(ulong, unsigned long)                    \
    X(ulonglong, unsigned long long) X(int8, int8_t) X(int16, int16_t) X(int32, int32_t) X(int64, int64_t)             \
    X(uint8, uint8_t) X(uint16, uint16_t) X(uint32, uint32_t) X(uint64, uint64_t) X(size, size_t)

/* Types that are apart in C, for generic names. */
#define OWN_TYPES(X)                                                                                                   \
    X(float, float) X(double, double) X(longdouble, long double) X(char, char) X(schar, signed char) X(short, short)   \
    X(int, int) X(long, long) X(longlong, long long) X(uchar, unsigned char) X(ushort, unsigned short)                 \
    X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long)

#define OWN_AMO_TYPES(X)                                                                                               \
    X(int, int) X(long, long) X(longlong, long long) X(uint, unsigned int) X(ulong, unsigned long)                     \
    X(ulonglong, unsigned long long)

static int me, pes;

static inline void begin(void)
{
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    CHECK(pes <= PES_MAX);
}

/* All have come this far: says so and leaves. */
static inline void end(const char *name)
{
    shmem_barrier_all();
    if (me == 0) {
        printf("ok %s\n", name);
        fflush(stdout);
    }
    shmem_finalize();
}

static inline int next_pe(void)
{
    return (me + 1) % pes;
}

static inline int previous_pe(void)
{
    return (me + pes - 1) % pes;
}

#endif
