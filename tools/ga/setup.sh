#!/usr/bin/env bash
# Installs what building and running Global Arrays needs and this machine does not have: setup.sh [mpich|openmpi]...
#
# Without an argument: for MPICH. Does nothing, and says nothing, when all is there.
set -euo pipefail

. "$(dirname "$0")/../apt.sh"

packages=()
# Takes a command, and the Debian packages that hold it.
needs() {
    command -v "$1" >/dev/null || packages+=("${@:2}")
}

needs gcc gcc libc6-dev
needs g++ g++
needs make make
needs gfortran gfortran
needs autoreconf autoconf automake
needs automake automake
needs libtoolize libtool
needs m4 m4
needs perl perl
python3 -c 'import venv, ensurepip' 2>/dev/null || packages+=(python3 python3-venv)
[ $# -gt 0 ] || set -- mpich
for mpi in "$@"; do
    case $mpi in
    mpich)
        needs mpiexec.mpich mpich
        needs mpicc.mpich libmpich-dev
        ;;
    openmpi)
        needs mpirun.openmpi openmpi-bin
        needs mpicc.openmpi libopenmpi-dev
        ;;
    armci-mpi)
        # Only the comparison of speeds asks for it.
        [ -f /usr/include/armci.h ] || packages+=(libarmci-mpi-dev)
        ;;
    *)
        say "there is nothing known of \"$mpi\": say mpich, openmpi or armci-mpi" >&2
        exit 2
        ;;
    esac
done

if [ ${#packages[@]} -gt 0 ]; then
    apt_install "${packages[@]}"
fi
