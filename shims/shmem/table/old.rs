//! The families that are deprecated, removed, or in no version.

use super::Family;
use super::Standing::{Beyond, Deprecated, Extension, Removed};
use super::families::{old, old_generic, plain};
use super::types::{
    OLD_AMO, OLD_EXTENDED, OLD_WAIT, OLD_WAIT_UNTIL, SIZED_OLD, TO_ALL_BITS, TO_ALL_ORDER, TO_ALL_SUM, WAIT_BEYOND,
};

/// Deprecated and removed.
pub const OLD: [Family; 42] = [
    plain(
        Deprecated,
        "void shmem_barrier(int PE_start, int logPE_stride, int PE_size, long *pSync)",
        "order::barrier({N}, Who::set((PE_start, logPE_stride, PE_size), pSync))",
    ),
    plain(
        Deprecated,
        "void shmem_sync(int PE_start, int logPE_stride, int PE_size, long *pSync)",
        "order::sync({N}, Who::set((PE_start, logPE_stride, PE_size), pSync))",
    ),
    old(
        SIZED_OLD,
        "void shmem_alltoall{T}(void *dest, const void *source, size_t nelems, int PE_start, int logPE_stride, int PE_size, long *pSync)",
        "collective::alltoall::<{C}>({N}, Who::set((PE_start, logPE_stride, PE_size), pSync), dest.cast(), source.cast(), (1, 1, nelems));",
    ),
    old(
        SIZED_OLD,
        "void shmem_alltoalls{T}(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int PE_start, int logPE_stride, int PE_size, long *pSync)",
        "collective::alltoall::<{C}>({N}, Who::set((PE_start, logPE_stride, PE_size), pSync), dest.cast(), source.cast(), (dst, sst, nelems));",
    ),
    old(
        SIZED_OLD,
        "void shmem_broadcast{T}(void *dest, const void *source, size_t nelems, int PE_root, int PE_start, int logPE_stride, int PE_size, long *pSync)",
        "collective::broadcast::<{C}>({N}, Who::set((PE_start, logPE_stride, PE_size), pSync), dest.cast(), source.cast(), nelems, PE_root);",
    ),
    old(
        SIZED_OLD,
        "void shmem_collect{T}(void *dest, const void *source, size_t nelems, int PE_start, int logPE_stride, int PE_size, long *pSync)",
        "collective::collect::<{C}>({N}, Who::set((PE_start, logPE_stride, PE_size), pSync), dest.cast(), source.cast(), nelems);",
    ),
    old(
        SIZED_OLD,
        "void shmem_fcollect{T}(void *dest, const void *source, size_t nelems, int PE_start, int logPE_stride, int PE_size, long *pSync)",
        "collective::fcollect::<{C}>({N}, Who::set((PE_start, logPE_stride, PE_size), pSync), dest.cast(), source.cast(), nelems);",
    ),
    old(
        TO_ALL_BITS,
        "void shmem_{T}_and_to_all({C} *dest, const {C} *source, int nreduce, int PE_start, int logPE_stride, int PE_size, {C} *pWrk, long *pSync)",
        "reduce::to_all::<And, {C}>({N}, Who::set_with_work((PE_start, logPE_stride, PE_size), pWrk, pSync), dest, source, nreduce)",
    ),
    old(
        TO_ALL_BITS,
        "void shmem_{T}_or_to_all({C} *dest, const {C} *source, int nreduce, int PE_start, int logPE_stride, int PE_size, {C} *pWrk, long *pSync)",
        "reduce::to_all::<Or, {C}>({N}, Who::set_with_work((PE_start, logPE_stride, PE_size), pWrk, pSync), dest, source, nreduce)",
    ),
    old(
        TO_ALL_BITS,
        "void shmem_{T}_xor_to_all({C} *dest, const {C} *source, int nreduce, int PE_start, int logPE_stride, int PE_size, {C} *pWrk, long *pSync)",
        "reduce::to_all::<Xor, {C}>({N}, Who::set_with_work((PE_start, logPE_stride, PE_size), pWrk, pSync), dest, source, nreduce)",
    ),
    old(
        TO_ALL_ORDER,
        "void shmem_{T}_max_to_all({C} *dest, const {C} *source, int nreduce, int PE_start, int logPE_stride, int PE_size, {C} *pWrk, long *pSync)",
        "reduce::to_all::<Max, {C}>({N}, Who::set_with_work((PE_start, logPE_stride, PE_size), pWrk, pSync), dest, source, nreduce)",
    ),
    old(
        TO_ALL_ORDER,
        "void shmem_{T}_min_to_all({C} *dest, const {C} *source, int nreduce, int PE_start, int logPE_stride, int PE_size, {C} *pWrk, long *pSync)",
        "reduce::to_all::<Min, {C}>({N}, Who::set_with_work((PE_start, logPE_stride, PE_size), pWrk, pSync), dest, source, nreduce)",
    ),
    old(
        TO_ALL_SUM,
        "void shmem_{T}_sum_to_all({C} *dest, const {C} *source, int nreduce, int PE_start, int logPE_stride, int PE_size, {C} *pWrk, long *pSync)",
        "reduce::to_all::<Sum, {C}>({N}, Who::set_with_work((PE_start, logPE_stride, PE_size), pWrk, pSync), dest, source, nreduce)",
    ),
    old(
        TO_ALL_SUM,
        "void shmem_{T}_prod_to_all({C} *dest, const {C} *source, int nreduce, int PE_start, int logPE_stride, int PE_size, {C} *pWrk, long *pSync)",
        "reduce::to_all::<Product, {C}>({N}, Who::set_with_work((PE_start, logPE_stride, PE_size), pWrk, pSync), dest, source, nreduce)",
    ),
    old_generic(
        OLD_EXTENDED,
        "shmem_fetch",
        "{C} shmem_{T}_fetch(const {C} *source, int pe)",
        "amo::fetch({N}, {X}, source, pe)",
    ),
    old_generic(
        OLD_EXTENDED,
        "shmem_set",
        "void shmem_{T}_set({C} *dest, {C} value, int pe)",
        "amo::set({N}, {X}, dest, value, pe)",
    ),
    old_generic(
        OLD_EXTENDED,
        "shmem_swap",
        "{C} shmem_{T}_swap({C} *dest, {C} value, int pe)",
        "amo::swap({N}, {X}, dest, value, pe)",
    ),
    old_generic(
        OLD_AMO,
        "shmem_cswap",
        "{C} shmem_{T}_cswap({C} *dest, {C} cond, {C} value, int pe)",
        "amo::compare_swap({N}, {X}, dest, cond, value, pe)",
    ),
    old_generic(
        OLD_AMO,
        "shmem_finc",
        "{C} shmem_{T}_finc({C} *dest, int pe)",
        "amo::fetch_add({N}, {X}, dest, 1, pe)",
    ),
    old_generic(OLD_AMO, "shmem_inc", "void shmem_{T}_inc({C} *dest, int pe)", "amo::add({N}, {X}, dest, 1, pe)"),
    old_generic(
        OLD_AMO,
        "shmem_fadd",
        "{C} shmem_{T}_fadd({C} *dest, {C} value, int pe)",
        "amo::fetch_add({N}, {X}, dest, value, pe)",
    ),
    old_generic(
        OLD_AMO,
        "shmem_add",
        "void shmem_{T}_add({C} *dest, {C} value, int pe)",
        "amo::add({N}, {X}, dest, value, pe)",
    ),
    old(
        OLD_WAIT,
        "void shmem_{T}_wait(volatile {C} *ivar, {C} cmp_value)",
        "wait::until({N}, ivar, wait::NOT_EQUAL, cmp_value)",
    ),
    Family {
        standing: Beyond,
        ..old(
            WAIT_BEYOND,
            "void shmem_{T}_wait(volatile {C} *ivar, {C} cmp_value)",
            "wait::until({N}, ivar, wait::NOT_EQUAL, cmp_value)",
        )
    },
    old_generic(
        OLD_WAIT_UNTIL,
        "shmem_wait_until",
        "void shmem_{T}_wait_until(volatile {C} *ivar, int cmp, {C} cmp_value)",
        "wait::until({N}, ivar, cmp, cmp_value)",
    ),
    old_generic(
        OLD_WAIT_UNTIL,
        "shmem_test",
        "int shmem_{T}_test(volatile {C} *ivar, int cmp, {C} cmp_value)",
        "wait::test({N}, ivar, cmp, cmp_value)",
    ),
    plain(
        Deprecated,
        "void shmem_wait(volatile long *ivar, long cmp_value)",
        "wait::until({N}, ivar, wait::NOT_EQUAL, cmp_value)",
    ),
    plain(
        Deprecated,
        "void shmem_wait_until(volatile long *ivar, int cmp, long cmp_value)",
        "wait::until({N}, ivar, cmp, cmp_value)",
    ),
    plain(Removed, "long shmem_swap(long *dest, long value, int pe)", "amo::swap({N}, DEFAULT, dest, value, pe)"),
    plain(Deprecated, "void start_pes(int npes)", "setup::start_pes({N}, npes)"),
    plain(Deprecated, "int _my_pe(void)", "setup::my_pe({N})"),
    plain(Deprecated, "int _num_pes(void)", "setup::n_pes({N})"),
    plain(Deprecated, "void *shmalloc(size_t size)", "heap::malloc({N}, size)"),
    plain(Deprecated, "void shfree(void *ptr)", "heap::free({N}, ptr)"),
    plain(Deprecated, "void *shrealloc(void *ptr, size_t size)", "heap::realloc({N}, ptr, size)"),
    plain(Deprecated, "void *shmemalign(size_t alignment, size_t size)", "heap::align({N}, alignment, size)"),
    plain(Removed, "void shmem_set_cache_inv(void)", "order::cache({N})"),
    plain(Removed, "void shmem_set_cache_line_inv(void *dest)", "order::cache_line({N}, dest)"),
    plain(Removed, "void shmem_clear_cache_inv(void)", "order::cache({N})"),
    plain(Removed, "void shmem_clear_cache_line_inv(void *dest)", "order::cache_line({N}, dest)"),
    plain(Removed, "void shmem_udcflush(void)", "order::cache({N})"),
    plain(Removed, "void shmem_udcflush_line(void *dest)", "order::cache_line({N}, dest)"),
];

/// In no version.
pub const EXTENSIONS: [Family; 8] = [
    plain(Extension, "double shmemx_wtime(void)", "info::wtime()"),
    plain(Extension, "void shmemx_register_gettid(shmemx_gettid_t gettid_fn)", "info::register_gettid({N}, gettid_fn)"),
    plain(
        Extension,
        "void shmemx_pcntr_get_issued_write(shmem_ctx_t ctx, uint64_t *cntr_value)",
        "info::counter({N}, ctx, info::Counted::Writes, cntr_value)",
    ),
    plain(
        Extension,
        "void shmemx_pcntr_get_issued_read(shmem_ctx_t ctx, uint64_t *cntr_value)",
        "info::counter({N}, ctx, info::Counted::Reads, cntr_value)",
    ),
    plain(
        Extension,
        "void shmemx_pcntr_get_completed_write(shmem_ctx_t ctx, uint64_t *cntr_value)",
        "info::counter({N}, ctx, info::Counted::Writes, cntr_value)",
    ),
    plain(
        Extension,
        "void shmemx_pcntr_get_completed_read(shmem_ctx_t ctx, uint64_t *cntr_value)",
        "info::counter({N}, ctx, info::Counted::Reads, cntr_value)",
    ),
    plain(
        Extension,
        "void shmemx_pcntr_get_completed_target(uint64_t *cntr_value)",
        "info::counter({N}, DEFAULT, info::Counted::Targeted, cntr_value)",
    ),
    plain(
        Extension,
        "void shmemx_pcntr_get_all(shmem_ctx_t ctx, shmemx_pcntr_t *pcntr)",
        "info::counters({N}, ctx, pcntr)",
    ),
];
