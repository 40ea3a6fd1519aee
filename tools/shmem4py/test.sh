#!/usr/bin/env bash
# Builds the Python package shmem4py from its source on longarm's OpenSHMEM, and runs its own tests.
#
#   tools/shmem4py/test.sh PREFIX
#
# PREFIX is where longarm is installed. The package, cffi and numpy come by pip into an environment below target/.
# shmem4py knows implementations by the macros of their headers, and takes each for complete or not; the flags below say of
# longarm, which it does not know, that everything is there. Its tests are for numpy 1.
set -euo pipefail
cd "$(dirname "$0")/../.."

[ $# -eq 1 ] || { echo "usage: $0 PREFIX" >&2; exit 2; }
prefix=$(cd "$1" && pwd)
version=1.0.0
folder=${CARGO_TARGET_DIR:-target}/shmem4py
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

. tools/apt.sh
python3 -c 'import venv, ensurepip' 2>/dev/null || apt_install python3 python3-venv
[ -x "$folder/venv/bin/python" ] || python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -c 'import cffi, numpy, setuptools, wheel' 2>/dev/null ||
    "$python" -m pip install --quiet cffi 'numpy<2' setuptools wheel
if [ ! -d "$folder/shmem4py-$version" ]; then
    "$python" -m pip download --quiet --no-binary shmem4py --no-deps --no-build-isolation --dest "$folder" \
        "shmem4py==$version"
    tar -xf "$folder/shmem4py-$version.tar.gz" -C "$folder"
fi

have=
for part in shmem_malloc_with_hints shmem_team_t SHMEM_CTX_INVALID shmem_amo_nbi shmem_put_signal shmem_signal_fetch \
    shmem_signal_wait_until shmem_broadcast shmem_collect shmem_fcollect shmem_alltoall shmem_alltoalls \
    shmem_broadcastmem shmem_collectmem shmem_fcollectmem shmem_alltoallmem shmem_alltoallsmem shmem_reduce \
    shmem_wait_test_many shmem_pcontrol; do
    have="$have -DPySHMEM_HAVE_$part=1"
done
(cd "$folder/shmem4py-$version" && rm -rf build &&
    OSHCC=$prefix/bin/oshcc CFLAGS=$have "$python" -m pip install --quiet --no-cache-dir --no-build-isolation --no-deps \
        --force-reinstall .)

# test_ptr: with some neighbours on this node and some not it calls a collective on some processes only (test_ptr.py:27-33).
failed=0
for layout in "1 1" "2 1" "4 1" "2 2" "4 2"; do
    read -r pes nodes <<<"$layout"
    names=$(cd "$folder/shmem4py-$version/test" && ls test_*.py | sed 's/\.py$//')
    [ "$layout" != "4 2" ] || names=$(grep -v '^test_ptr$' <<<"$names")
    log=$folder/$pes-on-$nodes.log
    # shellcheck disable=SC2086 # The names are words.
    if (cd "$folder/shmem4py-$version/test" &&
        "$prefix/bin/oshrun" -np "$pes" --nodes "$nodes" --timeout 300 "$python" -m unittest $names) >"$log" 2>&1; then
        echo "shmem4py on $pes processes, $nodes nodes: $(grep -m 1 '^Ran ' "$log") each, passed"
    else
        echo "shmem4py on $pes processes, $nodes nodes: FAILED, see $log"
        failed=1
    fi
done
exit "$failed"
