#!/usr/bin/env bash
# Makes libarmci.a and libarmci.so from the Rust archive.
#
#   build-library.sh ARCHIVE OUTPUT_FOLDER
#
# ARCHIVE is liblongarm_armci.a, as cargo builds it. The shared library is linked here and not by cargo, because cargo
# exports what Rust defines and nothing else: the weak ARMCI_ names would be hidden.
set -euo pipefail

if [ $# -ne 2 ]; then
    echo "usage: $0 ARCHIVE OUTPUT_FOLDER" >&2
    exit 2
fi
archive=$1
output=$2
here=$(cd "$(dirname "$0")" && pwd)

[ -f "$archive" ] || { echo "build-library: there is no $archive; cargo build -p longarm-armci makes it" >&2; exit 1; }
mkdir -p "$output"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The archive holds one object, so that what is not for programs can be hidden in it: Rust's own library above all, which
# another archive may bring along too. With verbs there is a call in it, which nobody makes, of a library that is looked for
# at run time only: a weak name may stay open when a program is linked.
ld -r -o "$work/armci.o" --whole-archive "$archive"
objcopy --wildcard --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd \
    --keep-global-symbol='ARMCI_*' --keep-global-symbol='ARMCIX_*' --keep-global-symbol='PARMCI_*' \
    --keep-global-symbol='armci_*' --keep-global-symbol='parmci_*' --keep-global-symbol=dassertp_fail \
    --keep-global-symbol=mp_group_name --weaken-symbol='ibv_*' --weaken-symbol='rdma_*' "$work/armci.o"
ar crs "$work/libarmci.a" "$work/armci.o"
mv "$work/libarmci.a" "$output/libarmci.a"

# -Bsymbolic-functions: calls inside the library take the short way; who interposes ARMCI_X is in front of them anyway.
cc -shared -o "$output/libarmci.so.part" -Wl,-soname,libarmci.so \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--version-script="$here/exports.map" -Wl,-Bsymbolic-functions -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro,-z,now \
    -lpthread -lm -ldl -lgcc_s -lc
mv "$output/libarmci.so.part" "$output/libarmci.so"
