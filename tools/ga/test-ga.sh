#!/usr/bin/env bash
# Builds Global Arrays on longarm and runs its tests, then those of the classic ARMCI:
#
#   test-ga.sh [mpich|openmpi] [--quick [--built]] [--no-run | --no-build]
#
# --no-run builds, and runs nothing. --no-build runs what a call with the other arguments has built.
# --quick runs the programs that end soon, on fewer ranks, and longarm as `make test` builds it, not optimised. Everything fetched and built stays in LONGARM_TEST_GA_CACHE, or in
# the folder ga of cargo's target folder, and is not made again. With --built besides, longarm is there already, and
# cargo is not asked, which would wait for another build.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

say() { printf 'test-ga: %s\n' "$*"; }

mpi=mpich
quick=
built=
run=yes
makes=yes
for argument in "$@"; do
    case $argument in
    mpich | openmpi) mpi=$argument ;;
    --quick) quick=yes ;;
    --built) built=yes ;;
    --no-run) run= ;;
    --no-build) makes= ;;
    *)
        say "usage: test-ga.sh [mpich|openmpi] [--quick [--built]] [--no-run | --no-build]" >&2
        exit 2
        ;;
    esac
done

. tools/ga/folders.sh
build=$cache/$mpi-longarm
profile=release
[ -z "$quick" ] || profile=debug
suite=$target/$profile/longarm-suite
if [ -n "$makes" ]; then
    tools/ga/setup.sh "$mpi"
    tools/ga/fetch.sh "$cache/source"
    if [ -n "$quick" ]; then
        # longarm as `make test` has built it: with assertions, and not optimised for users.
        [ -n "$built" ] || cargo build --locked --workspace --exclude longarm-verbs --lib --bins --examples
        make install-built BUILT="$target/debug" PREFIX="$prefix" DESTDIR=
    else
        make install PREFIX="$prefix" DESTDIR=
        cargo build --locked --release -p longarm-suite
    fi
    tools/ga/build.sh "$cache/source" "$build" "$mpi" longarm "$prefix"
fi
[ -n "$run" ] || exit 0

options=(run --build "$build" --mpi "$mpi" --limit-seconds 180)
if [ -n "$quick" ]; then
    options+=(--quick)
    # Everyday runs are to stay short: each list in two of the four.
    sizes=(--ranks 3 --nodes 1,2)
    sizes_classic=(--ranks 2 --nodes 1,2)
    # The same programs once more: what differs is how they are started.
    sizes_again=(--ranks 3 --nodes 2)
else
    sizes=(--ranks 2,3,4,5 --nodes 1,2)
    sizes_classic=("${sizes[@]}")
    sizes_again=("${sizes[@]}")
fi

outcomes=()
failed=0
# Runs one list: the name of its outcome, the list, then options of its own.
suite() {
    local name=$1 list=$2
    shift 2
    say "$name"
    local page=$cache/$mpi-$name
    if ! "$suite" "${options[@]}" --list "$root/tools/ga/$list" --logs "$cache/logs-$mpi-$name" \
        --markdown "$page.md" --json "$page.json" "$@"; then
        failed=1
    fi
    outcomes+=("$name: $(head -n 1 "$page.md")")
}

suite ga ga.list "${sizes[@]}"
suite classic classic.list "${sizes_classic[@]}"
# The classic programs need no MPI: then longarm's own launcher starts them.
suite classic-longarm-run classic.list "${sizes_again[@]}" --launcher longarm --longarm "$prefix/bin/longarm"

printf '\n'
for outcome in "${outcomes[@]}"; do
    say "$outcome"
done
say "the tables are in $cache/$mpi-*.md, the output of every run in $cache/logs-$mpi-*"
exit "$failed"
