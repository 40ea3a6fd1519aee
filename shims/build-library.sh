#!/usr/bin/env bash
# Makes a static and a shared library for C programs from a Rust archive.
#
#   build-library.sh ARCHIVE OUTPUT_FOLDER [LIBRARY]
#
# ARCHIVE, as cargo builds it, is liblongarm_armci.a, which makes libarmci, liblongarm_shmem.a, which makes liblongarm_shmem (with the
# other names that programs look for), or liblongarm_both.a, which makes liblongarm, or whichever of the three LIBRARY names. What
# programs may call stands in the exports.map of the interface; liblongarm has the names of both.
#
# The shared library is linked here and not by cargo, because cargo exports what Rust defines and nothing else: the weak
# names ARMCI_X and shmem_x would be hidden. It is LIBRARY.so.VERSION, whose symbols for debuggers lie beside it in
# LIBRARY.so.VERSION.debug; programs look for LIBRARY.so.MAJOR, and are linked by LIBRARY.so. All that they see are the headers of ARMCI and
# OpenSHMEM, with which the major number goes up, also from 0.
set -euo pipefail

if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    echo "usage: $0 ARCHIVE OUTPUT_FOLDER [LIBRARY]" >&2
    exit 2
fi
archive=$1
output=$2
shims=$(cd "$(dirname "$0")" && pwd)

case $(basename "$archive") in
liblongarm_armci.a) package=longarm-armci library=libarmci ;;
liblongarm_shmem.a) package=longarm-shmem library=liblongarm_shmem ;;
liblongarm_both.a) package=longarm-both library=${3:-liblongarm} ;;
*)
    echo "build-library: $archive is none of liblongarm_armci.a, liblongarm_shmem.a and liblongarm_both.a" >&2
    exit 2
    ;;
esac
if [ "${3:-$library}" != "$library" ]; then
    echo "build-library: $archive is for $library and not for $3" >&2
    exit 2
fi
other_names=
case $library in
libarmci) exports=("$shims/armci/exports.map") ;;
liblongarm_shmem)
    exports=("$shims/shmem/exports.map")
    other_names="libsma libopenshmem liboshmem"
    ;;
liblongarm) exports=("$shims/armci/exports.map" "$shims/shmem/exports.map") ;;
*)
    echo "build-library: there is no library $library; libarmci, liblongarm_shmem and liblongarm are made" >&2
    exit 2
    ;;
esac
[ -f "$archive" ] || { echo "build-library: there is no $archive; cargo build -p $package makes it" >&2; exit 1; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$shims/../Cargo.toml" | head -n 1)
shared=$library.so.$version soname=$library.so.${version%%.*}
mkdir -p "$output"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Names and patterns, a line each.
sed -n 's/^ *\([A-Za-z_][A-Za-z_]*\**\);$/\1/p' "${exports[@]}" >"$work/names"
mapfile -t keep < <(sed 's/^/--keep-global-symbol=/' "$work/names")
{
    echo '{ global:'
    sed 's/$/;/' "$work/names"
    echo 'local: *; };'
} >"$work/exports.map"

# The archive holds one object, so that what is not for programs can be hidden in it: Rust's own library above all, which
# another archive may bring along too. With verbs there is a call in it, which nobody makes, of a library that is looked for
# at run time only: a weak name may stay open when a program is linked.
ld -r -o "$work/$library.o" --whole-archive "$archive"
objcopy --wildcard --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd "${keep[@]}" \
    --weaken-symbol='ibv_*' --weaken-symbol='rdma_*' "$work/$library.o"
ar crs "$work/$library.a" "$work/$library.o"
mv "$work/$library.a" "$output/$library.a"

# -Bsymbolic-functions: calls inside the library take the short way; who interposes a weak name is in front of them anyway.
cc -shared -o "$work/$shared" -Wl,-soname,"$soname" \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--version-script="$work/exports.map" -Wl,-Bsymbolic-functions -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro,-z,now \
    -lpthread -lm -ldl -lgcc_s -lc
(
    cd "$work"
    objcopy --only-keep-debug "$shared" "$shared.debug"
    chmod 644 "$shared.debug"
    objcopy --strip-unneeded --add-gnu-debuglink="$shared.debug" "$shared"
)
# Each file takes its name at once, for a program that may be running with the one before.
for file in "$shared.debug" "$shared"; do
    mv "$work/$file" "$output/$file.part"
    mv "$output/$file.part" "$output/$file"
done
link() { # target name
    ln -sfn "$1" "$output/$2.part"
    mv -T "$output/$2.part" "$output/$2"
}
link "$shared" "$soname"
link "$soname" "$library.so"
for name in $other_names; do
    link "$library.so" "$name.so"
    link "$library.a" "$name.a"
done
