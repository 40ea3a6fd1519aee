/* Preloaded into the ranks of a job (longarm-suite run --say-finalize FILE): says when a rank comes to MPI_Finalize, so that a
 * job whose ranks are all there, and which does not end, is told from one that hangs before.
 *
 *   mpicc.mpich -shared -fPIC -o say_finalize.so say_finalize.c
 */
#include <mpi.h>
#include <unistd.h>

int MPI_Finalize(void)
{
    static const char line[] = "longarm-suite: a rank has come to MPI_Finalize\n";
    /* A line that cannot be written is a job that counts as hung. */
    if (write(STDERR_FILENO, line, sizeof line - 1) < 0) {
        return PMPI_Finalize();
    }
    return PMPI_Finalize();
}
