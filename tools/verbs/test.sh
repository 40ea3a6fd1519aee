#!/usr/bin/env bash
# What `make test-verbs` runs: tests, jobs and C programs over RDMA devices, in the virtual machine of tools/rdma-vm.
#
#   test.sh             all parts, the most telling first
#   test.sh PART...     these
#   test.sh --list      says which there are
#
# Programs are built here with the feature verbs; each part has a fresh machine. Says so and ends with status 0 where the
# machine cannot be had; LONGARM_TEST_VERBS=yes makes that an error, LONGARM_TEST_VERBS=no leaves all out.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
programs=$target/verbs-programs
# Where tools/ga/test-ga.sh builds Global Arrays, with MPICH.
export LONGARM_TEST_GA_BUILD=${LONGARM_TEST_GA_CACHE:-$target/ga}/mpich-longarm

# Name, limit in seconds, options of the machine, what it is. No part needs a third of its limit on a machine at rest.
PARTS=(
    "crate|400||the netmod's own tests: conformance on one device and two"
    "armci|600||C programs of ARMCI on two nodes and four"
    "shmem|900||C programs of OpenSHMEM on two nodes and four"
    "layouts|900||jobs with a rank on each of four nodes, and with five ranks on three"
    "differential|900||random programs against a model"
    "loss|900||a wire that loses 1 % of the packets, both ways"
    "hosts|600|--net hosts|MPI starts a job on two hosts, in a network namespace each"
    "ga|900|--net hosts|programs of Global Arrays and of the classic ARMCI on two hosts"
    "jobs|1500||jobs on two nodes of two ranks"
    "faults|600||deaths, heirs, strangers and wrong arguments"
    "port|600||a port that goes down for a second every few"
    "reorder|600||a wire that lets packets overtake each other"
    "corruption|600||a wire that changes and doubles packets"
    "delay|600||a wire that takes its time"
    "iwarp|1500|--siw|devices of iWARP, whose connections the connection manager makes"
    "routed|900||jobs whose ranks go through the servers of their nodes, all or some"
    "odp|1800|--suite trixie-backports --mended|memory on demand, with a newer kernel's soft-RoCE whose on-demand paging was put right"
    "odp-stock|900|--suite trixie-backports|the same kernel's soft-RoCE as it is"
    "nothing|300|--net none|a machine without devices"
)

say() { printf 'test-verbs: %s\n' "$*"; }

wanted=()
for argument in "$@"; do
    if [ "$argument" = --list ]; then
        printf '%s\n' "${PARTS[@]}" | awk -F'|' '{ printf "%-13s %s\n", $1, $4 }'
        exit 0
    fi
    printf '%s\n' "${PARTS[@]}" | cut -d'|' -f1 | grep -qx -- "$argument" || {
        say "there is no part $argument; test.sh --list says which there are" >&2
        exit 2
    }
    wanted+=("$argument")
done

leave_out() {
    say "left out: $1"
    [ "${LONGARM_TEST_VERBS:-}" = yes ] && exit 1
    exit 0
}
[ "${LONGARM_TEST_VERBS:-}" != no ] || leave_out "because LONGARM_TEST_VERBS=no"
tools/rdma-vm/setup || leave_out "the virtual machine cannot be had"

is_wanted() {
    [ ${#wanted[@]} -eq 0 ] || printf '%s\n' "${wanted[@]}" | grep -qx "$1"
}

# Builds the tests of a package, and links each under its name: `Executable tests/jobs.rs (target/..)` is what cargo says.
tests_of() {
    local package=$1 prefix=$2
    shift 2
    local log=$programs/$package.log
    if ! cargo test --locked --color never --no-run -p "$package" "$@" 2>"$log"; then
        cat "$log" >&2
        return 1
    fi
    sed -n 's|^ *Executable \(.*\) (\(.*\))$|\1 \2|p' "$log" | while read -r words; do
        local path=${words##* } source=${words% *}
        case $source in
        unittests*) ln -s "$(realpath "$path")" "$programs/${prefix}unit" ;;
        *) ln -s "$(realpath "$path")" "$programs/$prefix$(basename "$source" .rs)" ;;
        esac
    done
}

# libarmci with verbs, and the C programs: an archive is enough for those that MPI does not start.
build_c_programs() {
    local folder=$programs/armci source
    cargo build --locked --quiet -p longarm-armci --features verbs --lib || return 1
    shims/build-library.sh "$target/debug/liblongarm_armci.a" "$folder" || return 1
    for source in shims/armci/tests/c/*.c; do
        cc -std=c99 -O1 -g -I shims/armci/include -o "$folder/$(basename "$source" .c)" "$source" \
            "$folder/libarmci.a" -lgcc_s -lpthread -lm -ldl || return 1
    done
    if command -v mpicc.mpich >/dev/null; then
        mpicc.mpich -std=c99 -O1 -g -I shims/armci/include -o "$folder/job" shims/armci/tests/mpi/job.c \
            -Wl,--no-as-needed "$folder/libarmci.so" "-Wl,-rpath,$folder" || return 1
        mpicc.mpich -shared -fPIC -o "$folder/say_finalize.so" tools/suite/say_finalize.c || return 1
    fi
}

# The same for OpenSHMEM, whose wrapper links them with the shared library.
build_shmem_programs() {
    local folder=$programs/shmem source
    cargo build --locked --quiet -p longarm-shmem --features verbs --lib || return 1
    shims/shmem/install.sh "$target/debug/liblongarm_shmem.a" "$folder" || return 1
    for source in shims/shmem/tests/c/*.c shims/shmem/examples/*.c; do
        "$folder/bin/oshcc" -std=gnu11 -O1 -g -o "$folder/$(basename "$source" .c)" "$source" -lpthread -lm -ldl || return 1
    done
}

say "building"
rm -rf "$programs"
mkdir -p "$programs"
tests_of longarm-verbs crate- || exit 1
if [ "${wanted[*]}" != crate ]; then
    # The feature of every package at once, so that they share one longarm.
    tests_of longarm-launch "" --features verbs --test jobs --test differential --test faults || exit 1
    build_c_programs || exit 1
    build_shmem_programs || exit 1
    cargo build --locked --quiet -p longarm-suite || exit 1
    ln -s "$target/debug/longarm" "$programs/longarm"
    ln -s "$target/debug/longarm-suite" "$programs/suite"
fi

# What a part wants that is not here, if anything.
missing_for() {
    case $1 in
    hosts) [ -e "$programs/armci/job" ] || echo "there is no mpicc.mpich" ;;
    odp*)
        # Another kernel, which has to be fetched, and its driver, which has to be built.
        local options=(--suite trixie-backports)
        [ "$1" != odp ] || options+=(--mended)
        tools/rdma-vm/setup "${options[@]}" >"$log" 2>&1 || tail -n 1 "$log"
        ;;
    ga) [ -e "$LONGARM_TEST_GA_BUILD/.done-ga-programs" ] || echo "Global Arrays is not built: make test-ga does that" ;;
    esac
}

summary=()
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for entry in "${PARTS[@]}"; do
    IFS='|' read -r part limit options what <<<"$entry"
    is_wanted "$part" || continue
    missing=$(missing_for "$part")
    if [ -n "$missing" ]; then
        summary+=("$(printf '%-7s %-13s %s' - "$part" "left out, $missing")")
        continue
    fi
    printf '\n=== %s: %s\n' "$part" "$what"
    began=$SECONDS
    outcome=passed
    # shellcheck disable=SC2086 # The options are words.
    tools/rdma-vm/run $options --memory-mb 4096 --limit-seconds "$limit" --folder "$root" \
        tools/verbs/part.sh "$part" "$programs" 2>&1 | tee "$log" || outcome=FAILED
    [ "$outcome" = passed ] || failed=1
    traffic=$(sed -n 's/^verbs: \([0-9]* packets over RDMA.*\)/\1/p' "$log" | tail -n 1)
    tests=$(awk '/^test result: / { for (i = 1; i <= NF; i++) if ($i == "passed;") sum += $(i - 1) } END { print sum + 0 }' "$log")
    line=$(printf '%-7s %-13s %4d s  %3d tests; %s' "$outcome" "$part" $((SECONDS - began)) "$tests" "${traffic:-no end}")
    say "$line"
    summary+=("$line")
done

printf '\n=== summary\n'
printf '%s\n' "${summary[@]}"
printf 'in %d s\n' "$SECONDS"
if [ "$failed" -ne 0 ]; then
    echo "FAILED"
    exit 1
fi
echo "passed"
