/* The transpose of a matrix that is cut into strips of rows, by strided puts of columns; then once more, by alltoall. */
#include "common.h"

enum { EACH = 24, PES_MAX = 16, SIDE_MAX = EACH * PES_MAX };

static long matrix[EACH * SIDE_MAX], transposed[EACH * SIDE_MAX], packed[EACH * SIDE_MAX], received[EACH * SIDE_MAX];

int main(void)
{
    shmem_init();
    const int me = shmem_my_pe(), pes = shmem_n_pes(), side = EACH * pes;
    require(pes <= PES_MAX, "more PEs than this program knows");
    for (int row = 0; row < EACH; row++) {
        for (int column = 0; column < side; column++) {
            matrix[row * side + column] = (long)(me * EACH + row) * side + column;
        }
    }
    shmem_barrier_all();
    /* Each column of ours that belongs to a PE is a piece of one of its rows. */
    for (int pe = 0; pe < pes; pe++) {
        for (int row = 0; row < EACH; row++) {
            shmem_iput(&transposed[row * side + me * EACH], &matrix[pe * EACH + row], 1, side, EACH, pe);
        }
    }
    shmem_barrier_all();
    for (int row = 0; row < EACH; row++) {
        for (int column = 0; column < side; column++) {
            require(transposed[row * side + column] == (long)column * side + me * EACH + row, "an element is wrong");
        }
    }
    for (int pe = 0; pe < pes; pe++) {
        for (int row = 0; row < EACH; row++) {
            for (int column = 0; column < EACH; column++) {
                packed[(pe * EACH + column) * EACH + row] = matrix[row * side + pe * EACH + column];
            }
        }
    }
    shmem_alltoall(SHMEM_TEAM_WORLD, received, packed, EACH * EACH);
    for (int pe = 0; pe < pes; pe++) {
        for (int row = 0; row < EACH; row++) {
            for (int column = 0; column < EACH; column++) {
                require(received[(pe * EACH + row) * EACH + column] == transposed[row * side + pe * EACH + column],
                        "the two ways differ");
            }
        }
    }
    finish("transpose");
    return 0;
}
