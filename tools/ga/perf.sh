#!/usr/bin/env bash
# Compares the speed of longarm with that of other runtimes of ARMCI, in the same programs, in one go:
#
#   perf.sh [mpich|openmpi] [ROUNDS]
#
# The others are ComEx MPI-PR (which takes a rank for itself) and ComEx MPI-TS from the tree of Global Arrays, and
# ARMCI-MPI of Debian. The page goes to speed-MPI.md beside what test-ga.sh has built, in LONGARM_TEST_GA_CACHE.
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

target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
cache=${LONGARM_TEST_GA_CACHE:-$target/ga}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
prefix=$cache/prefix

tools/ga/setup.sh "$mpi" armci-mpi
tools/ga/fetch.sh "$cache/source"
make install PREFIX="$prefix"
tools/ga/build.sh "$cache/source" "$cache/$mpi-longarm" "$mpi" longarm "$prefix"
for runtime in mpi-pr mpi-ts armci-mpi; do
    tools/ga/build.sh "$cache/source" "$cache/$mpi-$runtime" "$mpi" "$runtime"
done
cargo build --locked --release -p longarm-suite
"$target/release/longarm-suite" speed --mpi "$mpi" --rounds "$rounds" --logs "$cache/logs-$mpi-speed" \
    --runtime "longarm=$cache/$mpi-longarm" --runtime "mpi-pr=$cache/$mpi-mpi-pr:1" \
    --runtime "mpi-ts=$cache/$mpi-mpi-ts" --runtime "armci-mpi=$cache/$mpi-armci-mpi" \
    --markdown "$cache/speed-$mpi.md"
printf 'perf: the page is in %s\n' "$cache/speed-$mpi.md"
