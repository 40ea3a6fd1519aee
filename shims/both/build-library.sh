#!/usr/bin/env bash
# Makes liblongarm.a and liblongarm.so, with ARMCI and OpenSHMEM, from the Rust archive.
#
#   build-library.sh ARCHIVE OUTPUT_FOLDER
#
# ARCHIVE is liblongarm_both.a, as cargo builds it. The names that programs may call are those of the two interfaces.
set -euo pipefail

if [ $# -ne 2 ]; then
    echo "usage: $0 ARCHIVE OUTPUT_FOLDER" >&2
    exit 2
fi
archive=$1
output=$2
shims=$(cd "$(dirname "$0")/.." && pwd)

[ -f "$archive" ] || { echo "build-library: there is no $archive; cargo build -p longarm-both makes it" >&2; exit 1; }
mkdir -p "$output"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

set -f # The names have stars.
names=$(cat "$shims/armci/exports.map" "$shims/shmem/exports.map" | sed -n 's/^ *\([A-Za-z_]*\**\);$/\1/p' | grep -v "^\*$")
keep=()
for name in $names; do
    keep+=("--keep-global-symbol=$name")
done
{
    echo '{ global:'
    printf '%s;\n' $names
    echo 'local: *; };'
} >"$work/exports.map"

# As for each of the two alone: see their scripts.
ld -r -o "$work/longarm.o" --whole-archive "$archive"
objcopy --wildcard --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd "${keep[@]}" \
    --weaken-symbol='ibv_*' --weaken-symbol='rdma_*' "$work/longarm.o"
ar crs "$work/liblongarm.a" "$work/longarm.o"
mv "$work/liblongarm.a" "$output/liblongarm.a"

cc -shared -o "$output/liblongarm.so.part" -Wl,-soname,liblongarm.so \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--version-script="$work/exports.map" -Wl,-Bsymbolic-functions -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro,-z,now \
    -lpthread -lm -ldl -lgcc_s -lc
mv "$output/liblongarm.so.part" "$output/liblongarm.so"
