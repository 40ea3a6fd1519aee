/* For programs with ARMCI_GIOV_BYTES_FIRST: the vector calls take their lists, whose two numbers are the other way round. armci.h
 * includes it. Each list is handed on by itself. */
#ifndef LONGARM_ARMCI_GIOV_H
#define LONGARM_ARMCI_GIOV_H

#define LONGARM_EACH_LIST_(type_call)                                                                                  \
    int at, code = 0;                                                                                                  \
    if (len < 1 || darr == NULL) {                                                                                     \
        longarm_giov_t *const list = NULL;                                                                             \
        const int length = len;                                                                                        \
        return type_call;                                                                                              \
    }                                                                                                                  \
    for (at = 0; at < len && code == 0; at++) {                                                                        \
        longarm_giov_t one, *const list = &one;                                                                        \
        const int length = 1;                                                                                          \
        one.src_ptr_array = darr[at].src_ptr_array;                                                                    \
        one.dst_ptr_array = darr[at].dst_ptr_array;                                                                    \
        one.ptr_array_len = darr[at].ptr_array_len;                                                                    \
        one.bytes = darr[at].bytes;                                                                                    \
        code = type_call;                                                                                              \
    }                                                                                                                  \
    return code;

static inline int longarm_put_lists_(armci_giov_t *darr, int len, int proc)
{
    LONGARM_EACH_LIST_(ARMCI_PutV(list, length, proc))
}

static inline int longarm_get_lists_(armci_giov_t *darr, int len, int proc)
{
    LONGARM_EACH_LIST_(ARMCI_GetV(list, length, proc))
}

static inline int longarm_acc_lists_(int op, void *scale, armci_giov_t *darr, int len, int proc)
{
    LONGARM_EACH_LIST_(ARMCI_AccV(op, scale, list, length, proc))
}

static inline int longarm_nb_put_lists_(armci_giov_t *darr, int len, int proc, armci_hdl_t *handle)
{
    LONGARM_EACH_LIST_(ARMCI_NbPutV(list, length, proc, handle))
}

static inline int longarm_nb_get_lists_(armci_giov_t *darr, int len, int proc, armci_hdl_t *handle)
{
    LONGARM_EACH_LIST_(ARMCI_NbGetV(list, length, proc, handle))
}

static inline int longarm_nb_acc_lists_(int op, void *scale, armci_giov_t *darr, int len, int proc, armci_hdl_t *handle)
{
    LONGARM_EACH_LIST_(ARMCI_NbAccV(op, scale, list, length, proc, handle))
}

#undef LONGARM_EACH_LIST_

#define ARMCI_PutV longarm_put_lists_
#define ARMCI_GetV longarm_get_lists_
#define ARMCI_AccV longarm_acc_lists_
#define ARMCI_NbPutV longarm_nb_put_lists_
#define ARMCI_NbGetV longarm_nb_get_lists_
#define ARMCI_NbAccV longarm_nb_acc_lists_

#endif
