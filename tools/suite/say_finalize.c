/* Preloaded into the ranks of a job (longarm-suite run --say-finalize FILE): says when a rank comes to MPI_Finalize and when it
 * comes out of it, so that a job whose ranks all stand there is told from one that hangs before or behind.
 *
 *   mpicc.mpich -shared -fPIC -o say_finalize.so say_finalize.c
 */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

static void say(const char *line, size_t length)
{
    /* A line that cannot be written is a job that counts as hung. */
    const ssize_t written = write(STDERR_FILENO, line, length);
    (void)written;
}

int MPI_Finalize(void)
{
    static const char comes[] = "longarm-suite: a rank has come to MPI_Finalize\n";
    static const char leaves[] = "longarm-suite: a rank has come out of MPI_Finalize\n";
    /* What the rank has printed is not to be lost with it. */
    fflush(NULL);
    say(comes, sizeof comes - 1);
    const int status = PMPI_Finalize();
    say(leaves, sizeof leaves - 1);
    return status;
}
