/* Where the compiler finds an MPI its names come along with armci.h, as programs of ARMCI-MPI expect. LONGARM_NO_MPI_H keeps them
 * out. */
#if !defined(LONGARM_ARMCI_WITH_MPI_H) && defined(__has_include) && !defined(LONGARM_NO_MPI_H)
#define LONGARM_ARMCI_WITH_MPI_H
#if __has_include(<mpi.h>)
#if defined(__cplusplus)
extern "C++" {
#endif
#include <mpi.h>
#if defined(__cplusplus)
}
#endif
#endif
#endif
