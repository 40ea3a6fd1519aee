/* The stride iterator, against loops. */
#include "check.h"

#include <iterator.h>

static void one_run(void)
{
    stride_info_t info;
    int count[1] = {40};
    char memory[40];
    armci_stride_info_init(&info, memory, 0, NULL, count);
    CHECK_EQUAL(armci_stride_info_size(&info), 1);
    CHECK_EQUAL(armci_stride_info_pos(&info), 0);
    CHECK(armci_stride_info_has_more(&info));
    CHECK(armci_stride_info_seg_ptr(&info) == memory);
    CHECK_EQUAL(armci_stride_info_seg_off(&info), 0);
    CHECK_EQUAL(armci_stride_info_seg_size(&info), 40);
    armci_stride_info_next(&info);
    CHECK(!armci_stride_info_has_more(&info));
    armci_stride_info_destroy(&info);
}

/* Rows of a part of a matrix are copied into another one of another width. */
static void matrices(void)
{
    int from[10][10], to[11][11], copied = 0;
    int from_stride[1] = {sizeof from[0]}, to_stride[1] = {sizeof to[0]}, count[2] = {5 * sizeof(int), 5};
    stride_info_t source, target;
    for (int row = 0; row < 10; row++) {
        for (int column = 0; column < 10; column++) {
            from[row][column] = row * 10 + column;
        }
    }
    memset(to, 0, sizeof to);
    armci_stride_info_init(&source, &from[2][3], 1, from_stride, count);
    armci_stride_info_init(&target, &to[3][4], 1, to_stride, count);
    CHECK_EQUAL(armci_stride_info_size(&source), 5);
    while (armci_stride_info_has_more(&source)) {
        CHECK(armci_stride_info_has_more(&target));
        CHECK_EQUAL(armci_stride_info_pos(&source), copied);
        CHECK_EQUAL(armci_stride_info_seg_off(&target), copied * (int)sizeof to[0]);
        memcpy(armci_stride_info_seg_ptr(&target), armci_stride_info_seg_ptr(&source),
               (size_t)armci_stride_info_seg_size(&source));
        armci_stride_info_next(&source);
        armci_stride_info_next(&target);
        copied++;
    }
    CHECK_EQUAL(copied, 5);
    CHECK(!armci_stride_info_has_more(&target));
    armci_stride_info_destroy(&source);
    armci_stride_info_destroy(&target);
    for (int row = 0; row < 11; row++) {
        for (int column = 0; column < 11; column++) {
            int inside = row >= 3 && row < 8 && column >= 4 && column < 9;
            CHECK_EQUAL(to[row][column], inside ? from[row - 1][column - 1] : 0);
        }
    }
}

/* Four levels, the first one running fastest. */
static void levels(void)
{
    const int strides[4] = {16, 64, 300, 1000}, counts[5] = {8, 3, 4, 1, 2};
    static char memory[3000];
    stride_info_t info;
    int position = 0;
    armci_stride_info_init(&info, memory, 4, strides, counts);
#ifndef WITH_MPI
    CHECK_EQUAL(armci_stride_info_count(&info), 24);
#endif
    CHECK_EQUAL(armci_stride_info_size(&info), 24);
    for (int last = 0; last < counts[4]; last++) {
        for (int third = 0; third < counts[3]; third++) {
            for (int second = 0; second < counts[2]; second++) {
                for (int first = 0; first < counts[1]; first++) {
                    int offset = first * strides[0] + second * strides[1] + third * strides[2] + last * strides[3];
                    CHECK(armci_stride_info_has_more(&info));
                    CHECK_EQUAL(armci_stride_info_pos(&info), position++);
                    CHECK_EQUAL(armci_stride_info_seg_off(&info), offset);
                    CHECK(armci_stride_info_seg_ptr(&info) == memory + offset);
                    armci_stride_info_next(&info);
                }
            }
        }
    }
    CHECK(!armci_stride_info_has_more(&info));
    armci_stride_info_destroy(&info);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    one_run();
    matrices();
    levels();
    end("stride_iterator");
    return 0;
}
