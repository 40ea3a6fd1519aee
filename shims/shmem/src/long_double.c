/* What Rust has no words for: long double, and functions with any number of arguments. The rest is in Rust. */

#include <stddef.h>
#include <stdint.h>

/* Moves one long double for the function that is named. In rma.rs. */
void longarm_shmem_put_long_double(const char *name, void *ctx, long double *dest, const long double *value, int pe);
void longarm_shmem_get_long_double(const char *name, void *ctx, long double *value, const long double *source, int pe);

/* The default context, as in shmem.h. */
#define DEFAULT ((void *)1)

void pshmem_longdouble_p(long double *dest, long double value, int pe);
void pshmem_ctx_longdouble_p(void *ctx, long double *dest, long double value, int pe);
long double pshmem_longdouble_g(const long double *source, int pe);
long double pshmem_ctx_longdouble_g(void *ctx, const long double *source, int pe);
void pshmem_pcontrol(int level, ...);

void pshmem_longdouble_p(long double *dest, long double value, int pe)
{
    longarm_shmem_put_long_double("shmem_longdouble_p", DEFAULT, dest, &value, pe);
}

void pshmem_ctx_longdouble_p(void *ctx, long double *dest, long double value, int pe)
{
    longarm_shmem_put_long_double("shmem_ctx_longdouble_p", ctx, dest, &value, pe);
}

long double pshmem_longdouble_g(const long double *source, int pe)
{
    long double value;
    longarm_shmem_get_long_double("shmem_longdouble_g", DEFAULT, &value, source, pe);
    return value;
}

long double pshmem_ctx_longdouble_g(void *ctx, const long double *source, int pe)
{
    long double value;
    longarm_shmem_get_long_double("shmem_ctx_longdouble_g", ctx, &value, source, pe);
    return value;
}

/* For profilers, who put their own in front of it. */
void pshmem_pcontrol(int level, ...)
{
    (void)level;
}

/* One step of a reduction: each element of the first becomes the combination with that of the second. */
#define COMBINE(name, expression)                                                                                      \
    void longarm_shmem_long_double_##name(long double *left, const long double *right, size_t count);                  \
    void longarm_shmem_long_double_##name(long double *left, const long double *right, size_t count)                   \
    {                                                                                                                  \
        for (size_t at = 0; at < count; at++) {                                                                        \
            const long double l = left[at], r = right[at];                                                             \
            left[at] = (expression);                                                                                   \
        }                                                                                                              \
    }

COMBINE(sum, l + r)
COMBINE(product, l * r)
COMBINE(min, r < l ? r : l)
COMBINE(max, r > l ? r : l)
