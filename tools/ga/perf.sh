#!/usr/bin/env bash
# Compares the speed of longarm with that of other runtimes of ARMCI, in the same programs, in one go:
#
#   perf.sh [mpich|openmpi] [ROUNDS]
#
# The others are ComEx MPI-PR (which takes a rank for itself) and ComEx MPI-TS from the tree of Global Arrays, and
# ARMCI-MPI of Debian. Measured is on one node, and between two hosts that hosts.sh makes up where that can be done. The
# pages go beside what test-ga.sh has built, in LONGARM_TEST_GA_CACHE.
set -euo pipefail
cd "$(dirname "$0")/../.."

mpi=${1:-mpich}
rounds=${2:-3}
case $mpi in
mpich | openmpi) ;;
*)
    printf 'perf: usage: perf.sh [mpich|openmpi] [ROUNDS]\n' >&2
    exit 2
    ;;
esac

. tools/ga/folders.sh

tools/ga/setup.sh "$mpi" armci-mpi
tools/ga/fetch.sh "$cache/source"
make install PREFIX="$prefix"
tools/ga/build.sh "$cache/source" "$cache/$mpi-longarm" "$mpi" longarm "$prefix"
for runtime in mpi-pr mpi-ts armci-mpi; do
    tools/ga/build.sh "$cache/source" "$cache/$mpi-$runtime" "$mpi" "$runtime"
done
cargo build --locked --release -p longarm-suite

# Takes the name of the page, then options of its own.
measure() {
    local page=$cache/speed-$mpi-$1.md
    "$target/release/longarm-suite" speed --mpi "$mpi" --rounds "$rounds" --logs "$cache/logs-$mpi-speed-$1" \
        --runtime "longarm=$cache/$mpi-longarm" --runtime "mpi-pr=$cache/$mpi-mpi-pr:1" \
        --runtime "mpi-ts=$cache/$mpi-mpi-ts" --runtime "armci-mpi=$cache/$mpi-armci-mpi" \
        --markdown "$page" "${@:2}"
    printf 'perf: the page is in %s\n' "$page"
}

measure node
if [ "$mpi" != mpich ]; then
    printf 'perf: between hosts: left out, which is measured with mpich\n'
elif tools/ga/hosts.sh up; then
    trap 'tools/ga/hosts.sh down' EXIT
    measure hosts --hosts 198.51.100.1,198.51.100.2 --agent tools/ga/at-host.sh --only armci-perf
else
    printf 'perf: between hosts: left out, no hosts can be made up here\n'
fi
