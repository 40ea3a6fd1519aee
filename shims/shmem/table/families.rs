//! The families, in the specification's order.

use super::types::{AMO, BITWISE, EXTENDED, NONE, OLD_WAIT_UNTIL, RMA, SIZED, Type};
use super::{Family, Generic, Standing, collectives};
use Standing::{Beyond, Current, Deprecated};

/// One function that is as it stands.
pub(super) const fn plain(standing: Standing, prototype: &'static str, body: &'static str) -> Family {
    Family { standing, prototype, body, types: NONE, has_context: false, generic: ("", Generic::None) }
}

/// The same, with a context too.
pub(super) const fn with_context(prototype: &'static str, body: &'static str) -> Family {
    Family { has_context: true, ..plain(Current, prototype, body) }
}

pub(super) const fn typed(
    types: &'static [Type],
    generic: &'static str,
    prototype: &'static str,
    body: &'static str,
) -> Family {
    let generic = (generic, Generic::ByPointer(0));
    Family { standing: Current, prototype, body, types, has_context: true, generic }
}

/// Without contexts.
pub(super) const fn local(
    types: &'static [Type],
    generic: &'static str,
    prototype: &'static str,
    body: &'static str,
) -> Family {
    Family { has_context: false, ..typed(types, generic, prototype, body) }
}

/// A collective of a team: its type is that of the second argument.
pub(super) const fn team(
    types: &'static [Type],
    generic: &'static str,
    prototype: &'static str,
    body: &'static str,
) -> Family {
    Family { generic: (generic, Generic::ByPointer(1)), ..local(types, generic, prototype, body) }
}

pub(super) const fn sized(prototype: &'static str, body: &'static str) -> Family {
    Family { types: SIZED, ..with_context(prototype, body) }
}

pub(super) const fn old(types: &'static [Type], prototype: &'static str, body: &'static str) -> Family {
    Family { types, ..plain(Deprecated, prototype, body) }
}

pub(super) const fn old_generic(
    types: &'static [Type],
    generic: &'static str,
    prototype: &'static str,
    body: &'static str,
) -> Family {
    Family { generic: (generic, Generic::ByPointer(0)), ..old(types, prototype, body) }
}

/// All families.
pub fn all() -> impl Iterator<Item = Family> {
    SETUP
        .into_iter()
        .chain(RMA_CALLS)
        .chain(AMO_CALLS)
        .chain(SIGNALS)
        .chain(collectives::WAITING)
        .chain(waiting_for_halves())
        .chain(collectives::COLLECTIVES)
        .chain(super::old::OLD)
        .chain(super::old::EXTENSIONS)
}

/// Waiting for several words at once, of the types that waiting for one has since the versions in which it had all of them.
fn waiting_for_halves() -> impl Iterator<Item = Family> {
    let several = |family: &Family| !["shmem_wait_until", "shmem_test"].contains(&family.generic.0);
    let halves = |family: Family| Family { standing: Beyond, types: OLD_WAIT_UNTIL, ..family };
    collectives::WAITING.into_iter().filter(several).map(halves)
}

const SETUP: [Family; 45] = [
    plain(Current, "void shmem_init(void)", "setup::init({N})"),
    plain(Current, "void shmem_finalize(void)", "setup::finalize({N})"),
    plain(Current, "int shmem_my_pe(void)", "setup::my_pe({N})"),
    plain(Current, "int shmem_n_pes(void)", "setup::n_pes({N})"),
    plain(Current, "void shmem_query_initialized(int *initialized)", "setup::query_initialized({N}, initialized)"),
    plain(Current, "void shmem_global_exit(int status)", "setup::global_exit({N}, status)"),
    plain(Current, "int shmem_pe_accessible(int pe)", "info::pe_accessible({N}, pe)"),
    plain(Current, "int shmem_addr_accessible(const void *addr, int pe)", "info::addr_accessible({N}, addr, pe)"),
    plain(Current, "void *shmem_ptr(const void *dest, int pe)", "info::pointer({N}, dest, pe)"),
    plain(
        Current,
        "void *shmem_team_ptr(shmem_team_t team, const void *dest, int pe)",
        "info::team_pointer({N}, team, dest, pe)",
    ),
    plain(Current, "void shmem_info_get_version(int *major, int *minor)", "info::version({N}, major, minor)"),
    plain(Current, "void shmem_info_get_name(char *name)", "info::name({N}, name.cast())"),
    plain(
        Current,
        "int shmem_init_thread(int requested, int *provided)",
        "setup::init_thread({N}, requested, provided)",
    ),
    plain(Current, "void shmem_query_thread(int *provided)", "setup::query_thread({N}, provided)"),
    plain(Current, "void *shmem_malloc(size_t size)", "heap::malloc({N}, size)"),
    plain(Current, "void shmem_free(void *ptr)", "heap::free({N}, ptr)"),
    plain(Current, "void *shmem_realloc(void *ptr, size_t size)", "heap::realloc({N}, ptr, size)"),
    plain(Current, "void *shmem_align(size_t alignment, size_t size)", "heap::align({N}, alignment, size)"),
    plain(
        Current,
        "void *shmem_malloc_with_hints(size_t size, long hints)",
        "heap::malloc_with_hints({N}, size, hints)",
    ),
    plain(Current, "void *shmem_calloc(size_t count, size_t size)", "heap::calloc({N}, count, size)"),
    plain(Current, "int shmem_team_my_pe(shmem_team_t team)", "team::my_pe({N}, team)"),
    plain(Current, "int shmem_team_n_pes(shmem_team_t team)", "team::n_pes({N}, team)"),
    plain(
        Current,
        "int shmem_team_get_config(shmem_team_t team, long config_mask, shmem_team_config_t *config)",
        "team::get_config({N}, team, config_mask, config)",
    ),
    plain(
        Current,
        "int shmem_team_translate_pe(shmem_team_t src_team, int src_pe, shmem_team_t dest_team)",
        "team::translate_pe({N}, src_team, src_pe, dest_team)",
    ),
    plain(
        Current,
        "int shmem_team_split_strided(shmem_team_t parent_team, int start, int stride, int size, const shmem_team_config_t *config, long config_mask, shmem_team_t *new_team)",
        "team::split_strided({N}, parent_team, (start, stride, size), (config, config_mask), new_team)",
    ),
    plain(
        Current,
        "int shmem_team_split_2d(shmem_team_t parent_team, int xrange, const shmem_team_config_t *xaxis_config, long xaxis_mask, shmem_team_t *xaxis_team, const shmem_team_config_t *yaxis_config, long yaxis_mask, shmem_team_t *yaxis_team)",
        "team::split_2d({N}, parent_team, xrange, (xaxis_config, xaxis_mask, xaxis_team), (yaxis_config, yaxis_mask, yaxis_team))",
    ),
    plain(Current, "void shmem_team_destroy(shmem_team_t team)", "team::destroy({N}, team)"),
    plain(Current, "int shmem_ctx_create(long options, shmem_ctx_t *ctx)", "context::create({N}, options, ctx)"),
    plain(
        Current,
        "int shmem_team_create_ctx(shmem_team_t team, long options, shmem_ctx_t *ctx)",
        "context::create_in_team({N}, team, options, ctx)",
    ),
    plain(Current, "void shmem_ctx_destroy(shmem_ctx_t ctx)", "context::destroy({N}, ctx)"),
    plain(Current, "int shmem_ctx_get_team(shmem_ctx_t ctx, shmem_team_t *team)", "context::get_team({N}, ctx, team)"),
    plain(
        Current,
        "void shmem_ctx_session_start(shmem_ctx_t ctx, long options, const shmem_ctx_session_config_t *config, long config_mask)",
        "context::session({N}, ctx, options, config, config_mask)",
    ),
    plain(
        Current,
        "void shmem_ctx_session_stop(shmem_ctx_t ctx)",
        "context::session({N}, ctx, 0, std::ptr::null(), 0)",
    ),
    plain(Current, "void shmem_pcontrol(int level, ...)", ""),
    with_context("void shmem_fence(void)", "order::fence({N}, {X})"),
    with_context("void shmem_quiet(void)", "order::quiet({N}, {X})"),
    with_context(
        "void shmem_pe_quiet(const int *target_pes, size_t npes)",
        "order::pe_quiet({N}, {X}, target_pes, npes)",
    ),
    plain(Current, "void shmem_barrier_all(void)", "order::barrier_all({N})"),
    plain(Current, "void shmem_sync_all(void)", "order::sync_all({N})"),
    plain(Current, "int shmem_team_sync(shmem_team_t team)", "order::team_sync({N}, team)"),
    plain(Current, "void shmem_set_lock(volatile long *lock)", "lock::set({N}, lock)"),
    plain(Current, "void shmem_clear_lock(volatile long *lock)", "lock::clear({N}, lock)"),
    plain(Current, "int shmem_test_lock(volatile long *lock)", "lock::test({N}, lock)"),
    plain(Current, "uint64_t shmem_signal_fetch(const uint64_t *sig_addr)", "wait::signal_fetch({N}, sig_addr)"),
    plain(
        Current,
        "uint64_t shmem_signal_wait_until(uint64_t *sig_addr, int cmp, uint64_t cmp_value)",
        "wait::signal_wait_until({N}, sig_addr, cmp, cmp_value)",
    ),
];

const RMA_CALLS: [Family; 22] = [
    typed(
        RMA,
        "shmem_put",
        "void shmem_{T}_put({C} *dest, const {C} *source, size_t nelems, int pe)",
        "rma::put({N}, {X}, dest, source, nelems, pe)",
    ),
    typed(
        RMA,
        "shmem_get",
        "void shmem_{T}_get({C} *dest, const {C} *source, size_t nelems, int pe)",
        "rma::get({N}, {X}, dest, source, nelems, pe)",
    ),
    typed(
        RMA,
        "shmem_iput",
        "void shmem_{T}_iput({C} *dest, const {C} *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe)",
        "strided::put({N}, {X}, (dest, dst), (source, sst), (1, nelems), pe)",
    ),
    typed(
        RMA,
        "shmem_iget",
        "void shmem_{T}_iget({C} *dest, const {C} *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe)",
        "strided::get({N}, {X}, (dest, dst), (source, sst), (1, nelems), pe)",
    ),
    typed(
        RMA,
        "shmem_ibput",
        "void shmem_{T}_ibput({C} *dest, const {C} *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe)",
        "strided::put({N}, {X}, (dest, dst), (source, sst), (bsize, nblocks), pe)",
    ),
    typed(
        RMA,
        "shmem_ibget",
        "void shmem_{T}_ibget({C} *dest, const {C} *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe)",
        "strided::get({N}, {X}, (dest, dst), (source, sst), (bsize, nblocks), pe)",
    ),
    typed(RMA, "shmem_p", "void shmem_{T}_p({C} *dest, {C} value, int pe)", "rma::put_one({N}, {X}, dest, value, pe)"),
    typed(RMA, "shmem_g", "{C} shmem_{T}_g(const {C} *source, int pe)", "rma::get_one({N}, {X}, source, pe)"),
    typed(
        RMA,
        "shmem_put_nbi",
        "void shmem_{T}_put_nbi({C} *dest, const {C} *source, size_t nelems, int pe)",
        "rma::put_nbi({N}, {X}, dest, source, nelems, pe)",
    ),
    typed(
        RMA,
        "shmem_get_nbi",
        "void shmem_{T}_get_nbi({C} *dest, const {C} *source, size_t nelems, int pe)",
        "rma::get_nbi({N}, {X}, dest, source, nelems, pe)",
    ),
    sized(
        "void shmem_put{T}(void *dest, const void *source, size_t nelems, int pe)",
        "rma::put::<{C}>({N}, {X}, dest.cast(), source.cast(), nelems, pe)",
    ),
    sized(
        "void shmem_get{T}(void *dest, const void *source, size_t nelems, int pe)",
        "rma::get::<{C}>({N}, {X}, dest.cast(), source.cast(), nelems, pe)",
    ),
    sized(
        "void shmem_iput{T}(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe)",
        "strided::put::<{C}>({N}, {X}, (dest.cast(), dst), (source.cast(), sst), (1, nelems), pe)",
    ),
    sized(
        "void shmem_iget{T}(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe)",
        "strided::get::<{C}>({N}, {X}, (dest.cast(), dst), (source.cast(), sst), (1, nelems), pe)",
    ),
    sized(
        "void shmem_ibput{T}(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe)",
        "strided::put::<{C}>({N}, {X}, (dest.cast(), dst), (source.cast(), sst), (bsize, nblocks), pe)",
    ),
    sized(
        "void shmem_ibget{T}(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe)",
        "strided::get::<{C}>({N}, {X}, (dest.cast(), dst), (source.cast(), sst), (bsize, nblocks), pe)",
    ),
    sized(
        "void shmem_put{T}_nbi(void *dest, const void *source, size_t nelems, int pe)",
        "rma::put_nbi::<{C}>({N}, {X}, dest.cast(), source.cast(), nelems, pe)",
    ),
    sized(
        "void shmem_get{T}_nbi(void *dest, const void *source, size_t nelems, int pe)",
        "rma::get_nbi::<{C}>({N}, {X}, dest.cast(), source.cast(), nelems, pe)",
    ),
    with_context(
        "void shmem_putmem(void *dest, const void *source, size_t nelems, int pe)",
        "rma::put::<u8>({N}, {X}, dest.cast(), source.cast(), nelems, pe)",
    ),
    with_context(
        "void shmem_getmem(void *dest, const void *source, size_t nelems, int pe)",
        "rma::get::<u8>({N}, {X}, dest.cast(), source.cast(), nelems, pe)",
    ),
    with_context(
        "void shmem_putmem_nbi(void *dest, const void *source, size_t nelems, int pe)",
        "rma::put_nbi::<u8>({N}, {X}, dest.cast(), source.cast(), nelems, pe)",
    ),
    with_context(
        "void shmem_getmem_nbi(void *dest, const void *source, size_t nelems, int pe)",
        "rma::get_nbi::<u8>({N}, {X}, dest.cast(), source.cast(), nelems, pe)",
    ),
];

const AMO_CALLS: [Family; 22] = [
    typed(
        EXTENDED,
        "shmem_atomic_fetch",
        "{C} shmem_{T}_atomic_fetch(const {C} *source, int pe)",
        "amo::fetch({N}, {X}, source, pe)",
    ),
    typed(
        EXTENDED,
        "shmem_atomic_set",
        "void shmem_{T}_atomic_set({C} *dest, {C} value, int pe)",
        "amo::set({N}, {X}, dest, value, pe)",
    ),
    typed(
        EXTENDED,
        "shmem_atomic_swap",
        "{C} shmem_{T}_atomic_swap({C} *dest, {C} value, int pe)",
        "amo::swap({N}, {X}, dest, value, pe)",
    ),
    typed(
        AMO,
        "shmem_atomic_compare_swap",
        "{C} shmem_{T}_atomic_compare_swap({C} *dest, {C} cond, {C} value, int pe)",
        "amo::compare_swap({N}, {X}, dest, cond, value, pe)",
    ),
    typed(
        AMO,
        "shmem_atomic_fetch_inc",
        "{C} shmem_{T}_atomic_fetch_inc({C} *dest, int pe)",
        "amo::fetch_add({N}, {X}, dest, 1, pe)",
    ),
    typed(AMO, "shmem_atomic_inc", "void shmem_{T}_atomic_inc({C} *dest, int pe)", "amo::add({N}, {X}, dest, 1, pe)"),
    typed(
        AMO,
        "shmem_atomic_fetch_add",
        "{C} shmem_{T}_atomic_fetch_add({C} *dest, {C} value, int pe)",
        "amo::fetch_add({N}, {X}, dest, value, pe)",
    ),
    typed(
        AMO,
        "shmem_atomic_add",
        "void shmem_{T}_atomic_add({C} *dest, {C} value, int pe)",
        "amo::add({N}, {X}, dest, value, pe)",
    ),
    typed(
        BITWISE,
        "shmem_atomic_fetch_and",
        "{C} shmem_{T}_atomic_fetch_and({C} *dest, {C} value, int pe)",
        "amo::fetch_and({N}, {X}, dest, value, pe)",
    ),
    typed(
        BITWISE,
        "shmem_atomic_and",
        "void shmem_{T}_atomic_and({C} *dest, {C} value, int pe)",
        "amo::and({N}, {X}, dest, value, pe)",
    ),
    typed(
        BITWISE,
        "shmem_atomic_fetch_or",
        "{C} shmem_{T}_atomic_fetch_or({C} *dest, {C} value, int pe)",
        "amo::fetch_or({N}, {X}, dest, value, pe)",
    ),
    typed(
        BITWISE,
        "shmem_atomic_or",
        "void shmem_{T}_atomic_or({C} *dest, {C} value, int pe)",
        "amo::or({N}, {X}, dest, value, pe)",
    ),
    typed(
        BITWISE,
        "shmem_atomic_fetch_xor",
        "{C} shmem_{T}_atomic_fetch_xor({C} *dest, {C} value, int pe)",
        "amo::fetch_xor({N}, {X}, dest, value, pe)",
    ),
    typed(
        BITWISE,
        "shmem_atomic_xor",
        "void shmem_{T}_atomic_xor({C} *dest, {C} value, int pe)",
        "amo::xor({N}, {X}, dest, value, pe)",
    ),
    typed(
        EXTENDED,
        "shmem_atomic_fetch_nbi",
        "void shmem_{T}_atomic_fetch_nbi({C} *fetch, const {C} *source, int pe)",
        "amo::fetch_nbi({N}, {X}, fetch, source, pe)",
    ),
    typed(
        EXTENDED,
        "shmem_atomic_swap_nbi",
        "void shmem_{T}_atomic_swap_nbi({C} *fetch, {C} *dest, {C} value, int pe)",
        "amo::swap_nbi({N}, {X}, fetch, dest, value, pe)",
    ),
    typed(
        AMO,
        "shmem_atomic_compare_swap_nbi",
        "void shmem_{T}_atomic_compare_swap_nbi({C} *fetch, {C} *dest, {C} cond, {C} value, int pe)",
        "amo::compare_swap_nbi({N}, {X}, fetch, dest, (cond, value), pe)",
    ),
    typed(
        AMO,
        "shmem_atomic_fetch_inc_nbi",
        "void shmem_{T}_atomic_fetch_inc_nbi({C} *fetch, {C} *dest, int pe)",
        "amo::fetch_add_nbi({N}, {X}, fetch, dest, 1, pe)",
    ),
    typed(
        AMO,
        "shmem_atomic_fetch_add_nbi",
        "void shmem_{T}_atomic_fetch_add_nbi({C} *fetch, {C} *dest, {C} value, int pe)",
        "amo::fetch_add_nbi({N}, {X}, fetch, dest, value, pe)",
    ),
    typed(
        BITWISE,
        "shmem_atomic_fetch_and_nbi",
        "void shmem_{T}_atomic_fetch_and_nbi({C} *fetch, {C} *dest, {C} value, int pe)",
        "amo::fetch_and_nbi({N}, {X}, fetch, dest, value, pe)",
    ),
    typed(
        BITWISE,
        "shmem_atomic_fetch_or_nbi",
        "void shmem_{T}_atomic_fetch_or_nbi({C} *fetch, {C} *dest, {C} value, int pe)",
        "amo::fetch_or_nbi({N}, {X}, fetch, dest, value, pe)",
    ),
    typed(
        BITWISE,
        "shmem_atomic_fetch_xor_nbi",
        "void shmem_{T}_atomic_fetch_xor_nbi({C} *fetch, {C} *dest, {C} value, int pe)",
        "amo::fetch_xor_nbi({N}, {X}, fetch, dest, value, pe)",
    ),
];

const SIGNALS: [Family; 8] = [
    typed(
        RMA,
        "shmem_put_signal",
        "void shmem_{T}_put_signal({C} *dest, const {C} *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)",
        "signal::put({N}, {X}, (dest, source, nelems), (sig_addr, signal, sig_op), pe)",
    ),
    typed(
        RMA,
        "shmem_put_signal_nbi",
        "void shmem_{T}_put_signal_nbi({C} *dest, const {C} *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)",
        "signal::put({N}, {X}, (dest, source, nelems), (sig_addr, signal, sig_op), pe)",
    ),
    sized(
        "void shmem_put{T}_signal(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)",
        "signal::put::<{C}>({N}, {X}, (dest.cast(), source.cast(), nelems), (sig_addr, signal, sig_op), pe)",
    ),
    sized(
        "void shmem_put{T}_signal_nbi(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)",
        "signal::put::<{C}>({N}, {X}, (dest.cast(), source.cast(), nelems), (sig_addr, signal, sig_op), pe)",
    ),
    with_context(
        "void shmem_putmem_signal(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)",
        "signal::put::<u8>({N}, {X}, (dest.cast(), source.cast(), nelems), (sig_addr, signal, sig_op), pe)",
    ),
    with_context(
        "void shmem_putmem_signal_nbi(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)",
        "signal::put::<u8>({N}, {X}, (dest.cast(), source.cast(), nelems), (sig_addr, signal, sig_op), pe)",
    ),
    with_context(
        "void shmem_signal_add(uint64_t *sig_addr, uint64_t signal, int pe)",
        "amo::add({N}, {X}, sig_addr, signal, pe)",
    ),
    with_context(
        "void shmem_signal_set(uint64_t *sig_addr, uint64_t signal, int pe)",
        "amo::set({N}, {X}, sig_addr, signal, pe)",
    ),
];
