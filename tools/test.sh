#!/usr/bin/env bash
# What `make test` runs. With the argument `lint`, only the checks that run no tests.
#
# Every step is run, whatever the others say, and the end lists them all. The exit status is 0 only if none failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

. tools/steps.sh

only=${1:-all}
target=${CARGO_TARGET_DIR:-target}
# Optimised builds are not optimised once more where crates are linked, which would take longer than what they run here. `make test-all` also
# tests what is installed.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

# What is built in folders of its own, and takes no notice of other work on the machine.
simulations_and_models() {
    # Whole jobs with faults, and whether the bugs that are planted on purpose are found. Built once for both: where none is planted, the jobs
    # do what they do without.
    step simulator env RUSTFLAGS="--cfg longarm_mutations" CARGO_TARGET_DIR="$target/mutations" \
        cargo test --locked --release -p longarm-sim --test large --test mutations
    # What stands in the place of machine code on other processors.
    step portable env RUSTFLAGS="--cfg longarm_portable" CARGO_TARGET_DIR="$target/portable" \
        cargo test --locked -p longarm-memory -p longarm-shm --lib
    # The model checker runs every order of the steps of what the ranks of a node share.
    step models env RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$target/loom" \
        cargo test --locked -p longarm-shm --release --lib loom
}

# Needs what the step `build` makes.
global_arrays_build() {
    step global-arrays-build tools/ga/test-ga.sh mpich --quick --built --no-run
}

# The longest tests, which wait much: for processes that are told to be silent, and for limits to pass. The packages are those of the other
# tests, so that no crate is built once more with other features.
launcher_tests() {
    local file targets=(--bin longarm)
    for file in tools/launch/tests/*.rs; do targets+=(--test "$(basename "$file" .rs)"); done
    step launcher-tests cargo test --locked --workspace --no-fail-fast "${targets[@]}"
}

# Beside the checks and builds that follow, whose last crates leave a processor free.
[ "$only" != all ] || begin_aside simulations_and_models
if cargo fmt --version >/dev/null 2>&1; then
    step format cargo fmt --all --check
else
    skip format "the toolchain has no rustfmt"
fi
if cargo clippy --version >/dev/null 2>&1; then
    step clippy cargo clippy --locked --workspace --all-targets -- -D warnings
    # What is only there with a feature.
    step clippy-verbs cargo clippy --locked -p longarm -p longarm-launch --features verbs --all-targets -- -D warnings
else
    skip clippy "the toolchain has no clippy"
fi
step rustdoc env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --all-features --no-deps
step rules cargo run --locked --quiet -p longarm-check -- .
# Which files each crate is published with; `make test-all` also builds them out of their packages.
step packages sh -c 'cargo package --workspace --locked --allow-dirty --list >/dev/null'
if command -v cargo-deny >/dev/null; then
    step dependencies cargo deny --locked check bans licenses sources
    if cargo deny fetch db >/dev/null 2>&1; then
        step advisories cargo deny --locked check advisories
    else
        skip advisories "their database cannot be fetched"
    fi
else
    skip dependencies "cargo-deny is not installed"
fi

if [ "$only" = all ]; then
    step compilers tools/setup.sh tests
    ga_cache=${LONGARM_TEST_GA_CACHE:-$target/ga}
    ga_missing=
    if [ "${LONGARM_TEST_GA:-yes}" = no ]; then
        ga_missing="because LONGARM_TEST_GA=no"
    # What Global Arrays needs has an MPI in it, with which the tests start jobs too.
    elif ! tools/ga/setup.sh mpich; then
        ga_missing="its compilers cannot be installed"
    elif ! tools/ga/fetch.sh "$ga_cache/source"; then
        ga_missing="its source cannot be fetched"
    fi
    # The tests start jobs with the longarm command, with the example programs, and link C programs with the archive.
    step build cargo build --locked --workspace --lib --bins --examples
    [ -n "$ga_missing" ] || begin_aside global_arrays_build
    step tests-build cargo test --locked --workspace --no-run
    # Nothing but other tests shares the processors with tests of whole jobs.
    join_aside simulations_and_models
    [ -n "$ga_missing" ] || join_aside global_arrays_build
    begin_aside launcher_tests
    step tests cargo test --locked --workspace --exclude longarm-launch --no-fail-fast
    join_aside launcher_tests
    # Jobs on hosts that are made up; `make test-launch` starts and kills them in every way.
    if [ "${LONGARM_TEST_LAUNCH:-}" = no ]; then
        skip launch "because LONGARM_TEST_LAUNCH=no"
    elif [ "$(id -u)" -ne 0 ]; then
        skip launch "only root can make hosts up"
    elif ! command -v ip >/dev/null || ! unshare --net --mount true 2>/dev/null; then
        skip launch "no network namespaces can be made here"
    else
        step launch tools/test-launch.sh --quick --rounds 1 agents
    fi
    # The verbs netmod on RDMA devices; `make test-verbs` runs much more there.
    if [ "${LONGARM_TEST_VERBS:-}" = no ]; then
        skip verbs "because LONGARM_TEST_VERBS=no"
    elif ! tools/rdma-vm/setup; then
        skip verbs "the virtual machine with RDMA devices cannot be had"
    else
        step verbs tools/verbs/test.sh crate
    fi
    # Instructions of the hot calls, which no other work on the machine changes.
    if command -v valgrind >/dev/null; then
        step counts benches/counts/run.sh --check benches/counts/dev.txt "$target/debug/longarm-bench"
    else
        skip counts "valgrind is not installed"
    fi
    if [ -n "$ga_missing" ]; then
        skip global-arrays "$ga_missing"
    else
        step global-arrays tools/ga/test-ga.sh mpich --quick --no-build
    fi
fi

finish
