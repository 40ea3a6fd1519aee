#!/usr/bin/env bash
# Installs OpenSHMEM's headers, libraries, wrappers and pkg-config file.
#
#   install.sh ARCHIVE FOLDER [PREFIX]
#
# ARCHIVE is liblongarm_shmem.a or liblongarm_both.a, as cargo builds it. Everything goes below FOLDER; PREFIX is what FOLDER will be called, where
# that differs. The longarm command has to be in FOLDER/bin for oshrun.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: $0 ARCHIVE FOLDER [PREFIX]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
archive=$1 folder=$2 prefix=${3:-$2}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -n 1)

install -d "$folder/bin" "$folder/include/mpp" "$folder/lib/pkgconfig"
"$here/../build-library.sh" "$archive" "$folder/lib" liblongarm_shmem
install -m 644 "$here"/include/*.h "$folder/include"
install -m 644 "$here"/include/mpp/*.h "$folder/include/mpp"
wrapper() {
    local name=$1 variable=$2 compiler=$3
    sed -e "s|@VARIABLE@|$variable|g" -e "s|@COMPILER@|$compiler|g" -e "s|@VERSION@|$version|g" \
        "$here/tools/oshcc.in" >"$folder/bin/$name"
    chmod 755 "$folder/bin/$name"
}
for name in oshcc shmemcc; do wrapper "$name" OSHCC_CC cc; done
for name in oshc++ oshcxx oshCC shmemc++ shmemcxx; do wrapper "$name" OSHCXX_CXX c++; done
install -m 755 "$here/tools/oshrun" "$folder/bin/oshrun"
ln -sf oshrun "$folder/bin/shmemrun"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/longarm-shmem.pc.in" >"$folder/lib/pkgconfig/openshmem.pc"
ln -sf openshmem.pc "$folder/lib/pkgconfig/longarm-shmem.pc"
