#!/usr/bin/env bash
# Makes liblongarm_shmem.a and liblongarm_shmem.so from the Rust archive.
#
#   build-library.sh ARCHIVE OUTPUT_FOLDER
#
# ARCHIVE is liblongarm_shmem.a, as cargo builds it. The shared library is linked here and not by cargo, because cargo
# exports what Rust defines and nothing else: the weak shmem_ names would be hidden.
set -euo pipefail

if [ $# -ne 2 ]; then
    echo "usage: $0 ARCHIVE OUTPUT_FOLDER" >&2
    exit 2
fi
archive=$1
output=$2
here=$(cd "$(dirname "$0")" && pwd)

[ -f "$archive" ] || { echo "build-library: there is no $archive; cargo build -p longarm-shmem makes it" >&2; exit 1; }
mkdir -p "$output"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The archive holds one object, so that what is not for programs can be hidden in it: Rust's own library above all, which
# another archive may bring along too.
keep=()
for name in 'shmem_*' 'shmemx_*' 'pshmem_*' 'pshmemx_*' start_pes _my_pe _num_pes shmalloc shfree shrealloc shmemalign \
    pstart_pes p_my_pe p_num_pes pshmalloc pshfree pshrealloc pshmemalign; do
    keep+=("--keep-global-symbol=$name")
done
ld -r -o "$work/shmem.o" --whole-archive "$archive"
objcopy --wildcard --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd "${keep[@]}" "$work/shmem.o"
ar crs "$work/liblongarm_shmem.a" "$work/shmem.o"
mv "$work/liblongarm_shmem.a" "$output/liblongarm_shmem.a"

# -Bsymbolic-functions: calls inside the library take the short way; who interposes shmem_x is in front of them anyway.
cc -shared -o "$output/liblongarm_shmem.so.part" -Wl,-soname,liblongarm_shmem.so \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--version-script="$here/exports.map" -Wl,-Bsymbolic-functions -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro,-z,now \
    -lpthread -lm -ldl -lgcc_s -lc
mv "$output/liblongarm_shmem.so.part" "$output/liblongarm_shmem.so"
# Names that programs look for.
for name in libsma libopenshmem liboshmem; do
    ln -sf liblongarm_shmem.so "$output/$name.so"
    ln -sf liblongarm_shmem.a "$output/$name.a"
done
