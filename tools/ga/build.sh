#!/usr/bin/env bash
# Builds Global Arrays and its test programs on a runtime:
#
#   build.sh SOURCE_FOLDER BUILD_FOLDER mpich|openmpi longarm|mpi-pr|mpi-ts|armci-mpi [PREFIX]
#
# SOURCE_FOLDER is the one fetch.sh filled. PREFIX is where longarm's include/ and lib/ are, for the runtime longarm.
# Each step leaves a stamp in BUILD_FOLDER and is not done again.
#
# The runtimes: `longarm` and `armci-mpi` are an ARMCI of its own that GA finds by --with-armci; GA then also builds the
# tests and examples of the classic ARMCI on it. `mpi-pr` and `mpi-ts` are ComEx, from GA's own tree.
set -euo pipefail

JOBS=${JOBS:-2}

say() { printf 'build: %s\n' "$*"; }
fail() {
    say "$*" >&2
    exit 1
}

here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 4 ] || fail "usage: build.sh SOURCE_FOLDER BUILD_FOLDER mpich|openmpi longarm|mpi-pr|mpi-ts|armci-mpi [PREFIX]"
source_folder=$(cd "$1" && pwd)
mkdir -p "$2"
build=$(cd "$2" && pwd)
mpi=$3
runtime=$4
prefix=${5:-}

# Runs a step once: its stamp's name, then the command, whose output goes to a file beside the stamp.
once() {
    local name=$1 stamp=$build/.done-$1 log=$build/$1.log
    shift
    [ -f "$stamp" ] && return
    local began=$SECONDS
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 30 "$log" >&2
        fail "the step \"$name\" failed; all of its output is in $log"
    fi
    touch "$stamp"
    say "$runtime, $mpi: $name took $((SECONDS - began)) s"
}

case $mpi in
mpich | openmpi) ;;
*) fail "there is nothing known of the MPI \"$mpi\": say mpich or openmpi" ;;
esac
for compiler in mpicc mpicxx mpif77; do
    command -v "$compiler.$mpi" >/dev/null || fail "there is no $compiler.$mpi: run tools/ga/setup.sh $mpi"
done

# A folder with include/ and lib/libarmci.a, as --with-armci wants it, made of what Debian's package lays elsewhere.
link_armci_mpi() {
    local archive
    archive=$(dirname "$("mpicc.$mpi" -print-file-name="libarmci-$mpi.a")")/libarmci-$mpi.a
    [ -f "$archive" ] || fail "there is no libarmci-$mpi.a: run tools/ga/setup.sh armci-mpi"
    prefix=$build/armci-mpi
    mkdir -p "$prefix/include" "$prefix/lib"
    ln -sfn "$archive" "$prefix/lib/libarmci.a"
    local header
    for header in armci armcix armciconf message parmci; do
        [ ! -f "/usr/include/$header.h" ] || ln -sfn "/usr/include/$header.h" "$prefix/include/$header.h"
    done
}

# Old C has common symbols. The last two flags are for one function, has_negative_elem of global/src/elem_alg.c, which
# returns a variable that it never sets, and by which elempatch fails: they make that variable 0.
c_flags="-O2 -w -fcommon -ftrivial-auto-var-init=zero -fno-inline-functions-called-once"
# Old Fortran passes arguments of several types. The last flag is for one statement of test.F, pgtest.F and pg2test.F,
# `b(i,j) = cmplx(drand(0), drand(1))`: where the compiler vectorizes it (GCC 12 at -O2), the sum beside it takes the
# numbers before they are rounded to single precision, and "zdot wrong" comes of it, on one rank too.
fortran_flags="-O2 -fallow-argument-mismatch -std=legacy -w -fno-tree-vectorize"
external=
linker_flags=
case $runtime in
longarm)
    [ -n "$prefix" ] || fail "the runtime longarm needs PREFIX, where its include/ and lib/ are"
    prefix=$(cd "$prefix" && pwd)
    for file in include/armci.h include/message.h include/parmci.h lib/libarmci.so; do
        [ -f "$prefix/$file" ] || fail "there is no $prefix/$file: run make install PREFIX=$prefix"
    done
    external=yes
    # The programs then find the library without LD_LIBRARY_PATH.
    linker_flags=-Wl,-rpath,$prefix/lib
    ;;
armci-mpi)
    link_armci_mpi
    external=yes
    ;;
mpi-pr | mpi-ts) ;;
*) fail "there is nothing known of the runtime \"$runtime\": say longarm, mpi-pr, mpi-ts or armci-mpi" ;;
esac

# The tree as fetched has no configure script. It is made once, in a copy, for all builds.
tree=$source_folder/ga-configured
prepare_tree() {
    rm -rf "$tree"
    cp -a "$source_folder/ga-master" "$tree"
    cd "$tree"
    autoreconf -if
    touch "$tree/.done-autoreconf"
}
if [ ! -f "$tree/.done-autoreconf" ]; then
    [ -f "$source_folder/ga-master/configure.ac" ] || fail "there is no $source_folder/ga-master: run fetch.sh first"
    # Two builds at once would make it twice.
    exec 9>"$source_folder/.lock"
    flock 9
    [ -f "$tree/.done-autoreconf" ] || once autoreconf prepare_tree
    exec 9>&-
fi

# What is built in $build was built with these. Others make it worthless.
check_ingredients() {
    local now
    now=$(
        printf '%s\n' "$c_flags" "$fortran_flags" "$linker_flags" "$("mpicc.$mpi" -show)"
        # A library of longarm may be exchanged under the programs, but not its headers.
        [ -z "$external" ] || sha256sum "$prefix"/include/*.h
    )
    if [ -f "$build/ingredients" ] && [ "$now" != "$(cat "$build/ingredients")" ]; then
        say "$runtime, $mpi: headers or flags have changed, so everything is built anew"
        find "$build" -mindepth 1 -maxdepth 1 ! -name armci-mpi -exec rm -rf {} +
    fi
    printf '%s\n' "$now" >"$build/ingredients"
}

configure() {
    cd "$build"
    local options=(--prefix="$build/install" --with-mpi --without-blas --without-lapack --without-scalapack)
    if [ -n "$external" ]; then
        # Turns on GA's own locks, which its configure script does for ComEx only. The threaded programs need them.
        options+=("--with-armci=$prefix" CPPFLAGS=-DPTHREADS)
    else
        options+=("--with-$runtime")
    fi
    "$tree/configure" "${options[@]}" \
        MPICC="mpicc.$mpi" MPICXX="mpicxx.$mpi" MPIF77="mpif77.$mpi" \
        FFLAGS="$fortran_flags" CFLAGS="$c_flags" \
        CXXFLAGS="$c_flags" LDFLAGS="$linker_flags"
}

# The words of a variable of a generated Makefile, one a line.
variable() {
    printf 'include Makefile\n.PHONY: show-words\nshow-words:\n\t@printf "%%s\\n" $(%s)\n' "$2" |
        make --no-print-directory -C "$1" -f - show-words | sed '/^$/d'
}

library() { make -C "$build" -j"$JOBS"; }

# What is listed as a parallel test of GA itself: its C++ and file I/O halves are other products' tests.
ga_programs() {
    local programs
    mapfile -t programs < <(variable "$build" GLOBAL_PARALLEL_TESTS)
    make -C "$build" -j"$JOBS" "${programs[@]}"
}

classic_programs() {
    local programs
    mapfile -t programs < <(variable "$build/armci" ARMCI_PARALLEL_TESTS; variable "$build/armci" ARMCI_SERIAL_TESTS)
    # perf_strided is no test but measures what perf does not.
    make -C "$build/armci" -j"$JOBS" "${programs[@]}" "testing/perf_strided$(variable "$build/armci" EXEEXT)"
}

comex_programs() { make -C "$build/comex" -j"$JOBS" checkprogs; }

# How a program outside GA's own build finds the library and its headers.
include=()
archive=()
config=$build/armci
find_library() {
    case $runtime in
    longarm)
        include=(-I"$prefix/include")
        archive=(-L"$prefix/lib" "$linker_flags" -larmci)
        ;;
    armci-mpi)
        include=(-I"$prefix/include")
        archive=("$prefix/lib/libarmci.a")
        ;;
    *)
        include=(-I"$tree/comex/src-armci")
        archive=("$build/comex/.libs/libarmci.a")
        config=$build/comex
        ;;
    esac
}

# Compiles a classic program: its place, then more flags and sources. A program that calls no MPI is linked with it all
# the same, for the library looks for the MPI that is in the process.
classic_program() {
    local program=$1 folder file sources
    shift
    folder=$(dirname "$program")
    sources=("$tree/armci/$program.c")
    for file in timing barrier; do
        [ ! -f "$tree/armci/$folder/$file.c" ] || sources+=("$tree/armci/$folder/$file.c")
    done
    mkdir -p "$build/armci/$folder"
    if ! "mpicc.$mpi" -O2 -w -fcommon -include stdarg.h -DHAVE_CONFIG_H -I"$config" "${include[@]}" \
        -I"$tree/armci/src/include" "${sources[@]}" "$@" -o "$build/armci/$program" "${archive[@]}" \
        -Wl,--no-as-needed -lpthread -lm; then
        printf 'left out, because it does not compile on %s: %s\n' "$runtime" "$program"
    fi
}

# The classic programs where GA's own rules do not build them: on ComEx there are none, and with an ARMCI that has
# everything the script of this version builds neither those that use the iterator and notify, nor any without a second
# armci_msg_init of their own, which needs MPI.
classic_programs_by_hand() {
    local program lu=examples/benchmarks/lu features=examples/features
    find_library
    for program in testing/{msgcheck,perf,perf_aggr,perf_strided,simple,simplelock,test,test2,test_groups,testitr} \
        testing/testnotify $lu/armci_blocking/{lu,lu-block,lu-b-bc} $lu/armci_nonblocking/{lu_nb_get,lu_nb_put} \
        $lu/pthreads/lu-thread $features/{aggregation,non-blocking,symmetric_memory}/simple/simple \
        $features/concurrency/simple/comdegree $features/notification/simple/testnotify examples/simpleApps/transp1D-c; do
        classic_program "$program"
    done
    # Remote procedure calls, which only the classic ARMCI has besides.
    [ "$runtime" != longarm ] || classic_program testing/gpctest
}

# Our own measurement of rmw, which no perf program of theirs makes, and the classic test of threads, which comes with a
# small library of threads and whose rule is off unless an unsupported option is given.
own_programs() {
    local more=()
    find_library
    mkdir -p "$build/armci"
    "mpicc.$mpi" -O2 "${include[@]}" "$here/perf_rmw.c" -o "$build/armci/perf_rmw" "${archive[@]}" -lpthread -lm
    # ARMCI-MPI lacks these two.
    [ "$runtime" != armci-mpi ] || more=("$tree"/armci/testing/rpl_armci_msg_{init,finalize}.c)
    classic_program testing/test_mt -DTHREAD_SAFE -DPOSIX_THREADS "$tree/armci/src/common/utils.c" "${more[@]}"
}

check_ingredients
once configure configure
once library library
once ga-programs ga_programs
case $runtime in
armci-mpi)
    once classic-programs classic_programs
    ;;
longarm)
    once classic-programs classic_programs_by_hand
    ;;
*)
    once comex-programs comex_programs
    once classic-programs classic_programs_by_hand
    ;;
esac
once own-programs own_programs
