/* Heat on a plate, cut into strips of rows: each PE gives its edges to its neighbours, with a signal. The sum of what a
 * closed plate holds does not change, and the result is that of one PE alone. */
#include "common.h"

#include <math.h>

enum { ROWS = 48, COLUMNS = 64, STEPS = 40, ROWS_MAX = ROWS + 2 };

/* With a row above and one below that are the neighbours'. */
static double plate[2][ROWS_MAX][COLUMNS];
static uint64_t from_above, from_below;
static double alone[2][ROWS][COLUMNS];

static double start_value(int row, int column)
{
    return (double)(scramble((uint64_t)(row * COLUMNS + column)) % 1000);
}

static double step(double here, double above, double below, double left, double right)
{
    return here + 0.2 * (above + below + left + right - 4 * here);
}

int main(void)
{
    shmem_init();
    const int me = shmem_my_pe(), pes = shmem_n_pes();
    const int first = ROWS * me / pes, rows = ROWS * (me + 1) / pes - first;
    require(rows >= 1, "there are more PEs than rows");
    for (int row = 0; row < rows; row++) {
        for (int column = 0; column < COLUMNS; column++) {
            plate[0][row + 1][column] = start_value(first + row, column);
        }
    }
    shmem_barrier_all();
    for (int turn = 0; turn < STEPS; turn++) {
        double(*now)[COLUMNS] = plate[turn % 2], (*next)[COLUMNS] = plate[(turn + 1) % 2];
        const uint64_t signal = (uint64_t)turn + 1;
        if (me > 0) {
            const int above_rows = first - ROWS * (me - 1) / pes;
            shmem_put_signal(now[above_rows + 1], now[1], COLUMNS, &from_below, signal, SHMEM_SIGNAL_SET, me - 1);
        }
        if (me < pes - 1) {
            shmem_put_signal(now[0], now[rows], COLUMNS, &from_above, signal, SHMEM_SIGNAL_SET, me + 1);
        }
        if (me > 0) {
            shmem_signal_wait_until(&from_above, SHMEM_CMP_GE, signal);
        }
        if (me < pes - 1) {
            shmem_signal_wait_until(&from_below, SHMEM_CMP_GE, signal);
        }
        for (int row = 1; row <= rows; row++) {
            const double *above = first + row == 1 ? now[row] : now[row - 1];
            const double *below = first + row == ROWS ? now[row] : now[row + 1];
            for (int column = 0; column < COLUMNS; column++) {
                const double here = now[row][column];
                const double left = column > 0 ? now[row][column - 1] : here;
                const double right = column < COLUMNS - 1 ? now[row][column + 1] : here;
                next[row][column] = step(here, above[column], below[column], left, right);
            }
        }
        /* Nobody writes to an edge that a neighbour still reads. */
        shmem_sync_all();
    }
    for (int row = 0; row < ROWS; row++) {
        for (int column = 0; column < COLUMNS; column++) {
            alone[0][row][column] = start_value(row, column);
        }
    }
    for (int turn = 0; turn < STEPS; turn++) {
        double(*now)[COLUMNS] = alone[turn % 2], (*next)[COLUMNS] = alone[(turn + 1) % 2];
        for (int row = 0; row < ROWS; row++) {
            for (int column = 0; column < COLUMNS; column++) {
                const double here = now[row][column];
                next[row][column] = step(here, row > 0 ? now[row - 1][column] : here,
                                         row < ROWS - 1 ? now[row + 1][column] : here,
                                         column > 0 ? now[row][column - 1] : here,
                                         column < COLUMNS - 1 ? now[row][column + 1] : here);
            }
        }
    }
    static double held, held_by_all, held_at_start;
    for (int row = 0; row < rows; row++) {
        for (int column = 0; column < COLUMNS; column++) {
            held += plate[STEPS % 2][row + 1][column];
            require(plate[STEPS % 2][row + 1][column] == alone[STEPS % 2][first + row][column], "a point differs");
        }
    }
    for (int row = 0; row < ROWS; row++) {
        for (int column = 0; column < COLUMNS; column++) {
            held_at_start += start_value(row, column);
        }
    }
    shmem_sum_reduce(SHMEM_TEAM_WORLD, &held_by_all, &held, 1);
    require(fabs(held_by_all - held_at_start) < 1e-6 * held_at_start, "heat was lost");
    finish("stencil");
    return 0;
}
