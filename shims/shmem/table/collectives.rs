//! The families of waiting, and of collectives over teams.

use super::Family;
use super::Standing::Current;
use super::families::{local, plain, team};
use super::types::{AMO, REDUCE_BITS, REDUCE_SUM, RMA};

/// Point-to-point synchronisation.
pub const WAITING: [Family; 14] = [
    local(
        AMO,
        "shmem_wait_until",
        "void shmem_{T}_wait_until(volatile {C} *ivar, int cmp, {C} cmp_value)",
        "wait::until({N}, ivar, cmp, cmp_value)",
    ),
    local(
        AMO,
        "shmem_wait_until_all",
        "void shmem_{T}_wait_until_all(volatile {C} *ivars, size_t nelems, const int *status, int cmp, {C} cmp_value)",
        "wait::all({N}, (ivars, nelems, status), cmp, wait::Values::one(cmp_value))",
    ),
    local(
        AMO,
        "shmem_wait_until_any",
        "size_t shmem_{T}_wait_until_any(volatile {C} *ivars, size_t nelems, const int *status, int cmp, {C} cmp_value)",
        "wait::any({N}, (ivars, nelems, status), cmp, wait::Values::one(cmp_value))",
    ),
    local(
        AMO,
        "shmem_wait_until_some",
        "size_t shmem_{T}_wait_until_some(volatile {C} *ivars, size_t nelems, size_t *indices, const int *status, int cmp, {C} cmp_value)",
        "wait::some({N}, (ivars, nelems, status), indices, cmp, wait::Values::one(cmp_value))",
    ),
    local(
        AMO,
        "shmem_wait_until_all_vector",
        "void shmem_{T}_wait_until_all_vector(volatile {C} *ivars, size_t nelems, const int *status, int cmp, {C} *cmp_values)",
        "wait::all({N}, (ivars, nelems, status), cmp, wait::Values::list(cmp_values))",
    ),
    local(
        AMO,
        "shmem_wait_until_any_vector",
        "size_t shmem_{T}_wait_until_any_vector(volatile {C} *ivars, size_t nelems, const int *status, int cmp, {C} *cmp_values)",
        "wait::any({N}, (ivars, nelems, status), cmp, wait::Values::list(cmp_values))",
    ),
    local(
        AMO,
        "shmem_wait_until_some_vector",
        "size_t shmem_{T}_wait_until_some_vector(volatile {C} *ivars, size_t nelems, size_t *indices, const int *status, int cmp, {C} *cmp_values)",
        "wait::some({N}, (ivars, nelems, status), indices, cmp, wait::Values::list(cmp_values))",
    ),
    local(
        AMO,
        "shmem_test",
        "int shmem_{T}_test(volatile {C} *ivar, int cmp, {C} cmp_value)",
        "wait::test({N}, ivar, cmp, cmp_value)",
    ),
    local(
        AMO,
        "shmem_test_all",
        "int shmem_{T}_test_all(volatile {C} *ivars, size_t nelems, const int *status, int cmp, {C} cmp_value)",
        "wait::test_all({N}, (ivars, nelems, status), cmp, wait::Values::one(cmp_value))",
    ),
    local(
        AMO,
        "shmem_test_any",
        "size_t shmem_{T}_test_any(volatile {C} *ivars, size_t nelems, const int *status, int cmp, {C} cmp_value)",
        "wait::test_any({N}, (ivars, nelems, status), cmp, wait::Values::one(cmp_value))",
    ),
    local(
        AMO,
        "shmem_test_some",
        "size_t shmem_{T}_test_some(volatile {C} *ivars, size_t nelems, size_t *indices, const int *status, int cmp, {C} cmp_value)",
        "wait::test_some({N}, (ivars, nelems, status), indices, cmp, wait::Values::one(cmp_value))",
    ),
    local(
        AMO,
        "shmem_test_all_vector",
        "int shmem_{T}_test_all_vector(volatile {C} *ivars, size_t nelems, const int *status, int cmp, {C} *cmp_values)",
        "wait::test_all({N}, (ivars, nelems, status), cmp, wait::Values::list(cmp_values))",
    ),
    local(
        AMO,
        "shmem_test_any_vector",
        "size_t shmem_{T}_test_any_vector(volatile {C} *ivars, size_t nelems, const int *status, int cmp, {C} *cmp_values)",
        "wait::test_any({N}, (ivars, nelems, status), cmp, wait::Values::list(cmp_values))",
    ),
    local(
        AMO,
        "shmem_test_some_vector",
        "size_t shmem_{T}_test_some_vector(volatile {C} *ivars, size_t nelems, size_t *indices, const int *status, int cmp, {C} *cmp_values)",
        "wait::test_some({N}, (ivars, nelems, status), indices, cmp, wait::Values::list(cmp_values))",
    ),
];

/// Collectives.
pub const COLLECTIVES: [Family; 19] = [
    team(
        RMA,
        "shmem_alltoall",
        "int shmem_{T}_alltoall(shmem_team_t team, {C} *dest, const {C} *source, size_t nelems)",
        "collective::alltoall({N}, Who::Team(team), dest, source, (1, 1, nelems))",
    ),
    team(
        RMA,
        "shmem_alltoalls",
        "int shmem_{T}_alltoalls(shmem_team_t team, {C} *dest, const {C} *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems)",
        "collective::alltoall({N}, Who::Team(team), dest, source, (dst, sst, nelems))",
    ),
    team(
        RMA,
        "shmem_broadcast",
        "int shmem_{T}_broadcast(shmem_team_t team, {C} *dest, const {C} *source, size_t nelems, int PE_root)",
        "collective::broadcast({N}, Who::Team(team), dest, source, nelems, PE_root)",
    ),
    team(
        RMA,
        "shmem_collect",
        "int shmem_{T}_collect(shmem_team_t team, {C} *dest, const {C} *source, size_t nelems)",
        "collective::collect({N}, Who::Team(team), dest, source, nelems)",
    ),
    team(
        RMA,
        "shmem_fcollect",
        "int shmem_{T}_fcollect(shmem_team_t team, {C} *dest, const {C} *source, size_t nelems)",
        "collective::fcollect({N}, Who::Team(team), dest, source, nelems)",
    ),
    plain(
        Current,
        "int shmem_alltoallmem(shmem_team_t team, void *dest, const void *source, size_t nelems)",
        "collective::alltoall::<u8>({N}, Who::Team(team), dest.cast(), source.cast(), (1, 1, nelems))",
    ),
    plain(
        Current,
        "int shmem_alltoallsmem(shmem_team_t team, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems)",
        "collective::alltoall::<u8>({N}, Who::Team(team), dest.cast(), source.cast(), (dst, sst, nelems))",
    ),
    plain(
        Current,
        "int shmem_broadcastmem(shmem_team_t team, void *dest, const void *source, size_t nelems, int PE_root)",
        "collective::broadcast::<u8>({N}, Who::Team(team), dest.cast(), source.cast(), nelems, PE_root)",
    ),
    plain(
        Current,
        "int shmem_collectmem(shmem_team_t team, void *dest, const void *source, size_t nelems)",
        "collective::collect::<u8>({N}, Who::Team(team), dest.cast(), source.cast(), nelems)",
    ),
    plain(
        Current,
        "int shmem_fcollectmem(shmem_team_t team, void *dest, const void *source, size_t nelems)",
        "collective::fcollect::<u8>({N}, Who::Team(team), dest.cast(), source.cast(), nelems)",
    ),
    team(
        REDUCE_BITS,
        "shmem_and_reduce",
        "int shmem_{T}_and_reduce(shmem_team_t team, {C} *dest, const {C} *source, size_t nreduce)",
        "reduce::all::<And, {C}>({N}, Who::Team(team), dest, source, nreduce)",
    ),
    team(
        REDUCE_BITS,
        "shmem_or_reduce",
        "int shmem_{T}_or_reduce(shmem_team_t team, {C} *dest, const {C} *source, size_t nreduce)",
        "reduce::all::<Or, {C}>({N}, Who::Team(team), dest, source, nreduce)",
    ),
    team(
        REDUCE_BITS,
        "shmem_xor_reduce",
        "int shmem_{T}_xor_reduce(shmem_team_t team, {C} *dest, const {C} *source, size_t nreduce)",
        "reduce::all::<Xor, {C}>({N}, Who::Team(team), dest, source, nreduce)",
    ),
    team(
        RMA,
        "shmem_max_reduce",
        "int shmem_{T}_max_reduce(shmem_team_t team, {C} *dest, const {C} *source, size_t nreduce)",
        "reduce::all::<Max, {C}>({N}, Who::Team(team), dest, source, nreduce)",
    ),
    team(
        RMA,
        "shmem_min_reduce",
        "int shmem_{T}_min_reduce(shmem_team_t team, {C} *dest, const {C} *source, size_t nreduce)",
        "reduce::all::<Min, {C}>({N}, Who::Team(team), dest, source, nreduce)",
    ),
    team(
        REDUCE_SUM,
        "shmem_sum_reduce",
        "int shmem_{T}_sum_reduce(shmem_team_t team, {C} *dest, const {C} *source, size_t nreduce)",
        "reduce::all::<Sum, {C}>({N}, Who::Team(team), dest, source, nreduce)",
    ),
    team(
        REDUCE_SUM,
        "shmem_prod_reduce",
        "int shmem_{T}_prod_reduce(shmem_team_t team, {C} *dest, const {C} *source, size_t nreduce)",
        "reduce::all::<Product, {C}>({N}, Who::Team(team), dest, source, nreduce)",
    ),
    team(
        REDUCE_SUM,
        "shmem_sum_inscan",
        "int shmem_{T}_sum_inscan(shmem_team_t team, {C} *dest, const {C} *source, size_t nelems)",
        "reduce::scan::<Sum, {C}>({N}, Who::Team(team), dest, source, (nelems, true))",
    ),
    team(
        REDUCE_SUM,
        "shmem_sum_exscan",
        "int shmem_{T}_sum_exscan(shmem_team_t team, {C} *dest, const {C} *source, size_t nelems)",
        "reduce::scan::<Sum, {C}>({N}, Who::Team(team), dest, source, (nelems, false))",
    ),
];
