/* Starting and ending, more than once; levels of threads; names and versions; twins; a child of a fork. */
#include <pshmem.h>
#include <shmemx.h>

#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static int variable = 11;

static uint64_t thread_number(void)
{
    return 1;
}

int main(void)
{
    int provided = -1, major = 0, minor = 0, initialized = -1;
    char name[SHMEM_MAX_NAME_LEN + 1];
    shmem_query_initialized(&initialized);
    if (initialized != 0) {
        return 1;
    }
    shmemx_register_gettid(thread_number);
    if (shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) != 0 || provided != SHMEM_THREAD_MULTIPLE) {
        return 1;
    }
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    shmem_query_thread(&provided);
    CHECK_EQUAL(provided, SHMEM_THREAD_MULTIPLE);
    shmem_finalize();
    shmem_query_initialized(&initialized);
    CHECK_EQUAL(initialized != 0, 1);
    shmem_info_get_version(&major, &minor);
    CHECK(major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION);
    shmem_info_get_name(name);
    CHECK(strcmp(name, SHMEM_VENDOR_STRING) == 0);
    CHECK_EQUAL(pshmem_my_pe(), me);
    pshmem_int_p(&variable, 12, next_pe());
    pshmem_barrier_all();
    CHECK_EQUAL(variable, 12);
    shmem_pcontrol(1);
    const double then = shmemx_wtime();
    CHECK(shmemx_wtime() >= then);
    uint64_t writes = 0;
    shmemx_pcntr_get_issued_write(SHMEM_CTX_DEFAULT, &writes);
    CHECK(writes >= 1);
    shmemx_pcntr_t counters = { 9, 9, 9, 9, 9 };
    shmemx_pcntr_get_all(SHMEM_CTX_DEFAULT, &counters);
    CHECK(counters.pending_put >= writes && counters.completed_put == counters.pending_put);
    CHECK(counters.pending_get == counters.completed_get && counters.target == 0);
    /* Hints of Sandia's. */
    void *hinted = shmem_malloc_with_hints(100, SHMEMX_MALLOC_NO_BARRIER | SHMEM_MALLOC_ATOMICS_REMOTE);
    CHECK(hinted != NULL);
    shmem_free(hinted);
    shmem_ctx_t ctx;
    CHECK_EQUAL(shmem_ctx_create(SHMEMX_CTX_BOUNCE_BUFFER, &ctx), 0);
    shmem_ctx_destroy(ctx);
    shmem_barrier_all();
    /* A child has variables of its own. */
#ifndef IN_ONE_FILE
    const pid_t child = fork();
    if (child == 0) {
        variable = 99;
        _exit(variable == 99 ? 5 : 6);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK_EQUAL(WEXITSTATUS(status), 5);
#endif
    CHECK_EQUAL(variable, 12);
    CHECK_EQUAL(shmem_int_g(&variable, next_pe()), 12);
    end("setup");
    shmem_query_initialized(&initialized);
    return initialized;
}
