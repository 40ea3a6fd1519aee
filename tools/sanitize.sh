#!/usr/bin/env bash
# What `make sanitize` runs: the tests under the checkers for undefined behaviour of the nightly toolchain. With an
# argument (address, thread, miri) only that one.
#
# What cannot run here is left out with a word. The exit status is 0 only if nothing that ran has failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

only=${1:-all}
case $only in
    all | address | thread | miri) ;;
    *)
        echo "unknown: $only; there are address, thread and miri" >&2
        exit 2
        ;;
esac
target=${CARGO_TARGET_DIR:-target}/sanitize
host=x86_64-unknown-linux-gnu
toolchain=${LONGARM_NIGHTLY:-nightly}
packages=(-p longarm-memory -p longarm-proto -p longarm-shm -p longarm-netmod -p longarm-server -p longarm-client -p longarm)

. tools/steps.sh

wanted() {
    [ "$only" = all ] || [ "$only" = "$1" ]
}

# Whether a component of the toolchain is there, or can be had.
component() {
    rustup component list --toolchain "$toolchain" --installed 2>/dev/null | grep -q "^$1" ||
        timeout 300 rustup component add --toolchain "$toolchain" "$1" >/dev/null 2>&1
}

if ! cargo "+$toolchain" --version >/dev/null 2>&1; then
    timeout 300 rustup toolchain install "$toolchain" --profile minimal >/dev/null 2>&1
fi
missing=
if [ "$(uname -s) $(uname -m)" != "Linux x86_64" ]; then
    missing="this machine is not $host"
elif ! cargo "+$toolchain" --version >/dev/null 2>&1; then
    missing="there is no $toolchain toolchain, and none can be installed"
fi

# Copies of bytes are machine code, into which no checker looks: what they touch is checked where the lengths are.
if wanted address; then
    if [ -n "$missing" ]; then
        skip address "$missing"
    else
        step address env RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS=detect_leaks=1 CARGO_TARGET_DIR="$target/address" \
            cargo "+$toolchain" test --locked --no-fail-fast --target "$host" --lib --tests "${packages[@]}"
    fi
fi

# Every lock and every thread of the standard library has to be seen too, so that is built as well.
if wanted thread; then
    if [ -n "$missing" ]; then
        skip thread "$missing"
    elif ! component rust-src; then
        skip thread "the source of the standard library (rust-src) is not installed and cannot be"
    else
        # It leaves a program some ranges of addresses only, and where windows are mapped is in none of them.
        unmappable=(a_range_that_is_taken a_segment_is_mapped_where two_processes_see_each_others_stores)
        printf '\n=== thread: left out, as their addresses are not free under ThreadSanitizer: %s\n' "${unmappable[*]}"
        step thread env RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR="$target/thread" \
            cargo "+$toolchain" test --locked --no-fail-fast -Zbuild-std --target "$host" --lib --tests "${packages[@]}" \
            -- "${unmappable[@]/#/--skip=}"
        # What stands in the place of machine code on other processors, where it sees each access.
        step thread-portable env RUSTFLAGS="-Zsanitizer=thread --cfg longarm_portable" CARGO_TARGET_DIR="$target/thread" \
            cargo "+$toolchain" test --locked --no-fail-fast -Zbuild-std --target "$host" --lib \
            -p longarm-memory -p longarm-shm -- "${unmappable[@]/#/--skip=}"
    fi
fi

# Crates without system calls. Few cases of each property: it is some hundred times slower. Copies read slices by atomic
# loads, which the stricter of its two models of references (Stacked Borrows) takes for writes.
if wanted miri; then
    if [ -n "$missing" ]; then
        skip miri "$missing"
    elif ! component rust-src || ! component miri; then
        skip miri "its component is not installed and cannot be"
    else
        step miri env PROPTEST_CASES=4 MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-tree-borrows" CARGO_TARGET_DIR="$target/miri" \
            cargo "+$toolchain" miri test --locked --no-fail-fast --lib --tests -p longarm-memory -p longarm-proto
        step miri-shm env MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-tree-borrows" CARGO_TARGET_DIR="$target/miri" \
            cargo "+$toolchain" miri test --locked --no-fail-fast --lib -p longarm-shm
    fi
fi

finish
