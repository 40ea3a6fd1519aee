#!/usr/bin/env bash
# Measures how long jobs on several hosts take to start: start-times.sh [OPTION]...
#
#   --hosts H, --ppn P   on how many hosts, with how many ranks each (8 and 8)
#   --rounds N           how often each is measured (7)
#   --only NAMES         only these, separated by commas
#   --programs FOLDER    an installed longarm (default: what tools/test-launch.sh has installed)
#
# All contenders run in turns, so that all of them meet the same load. For each: the median time from its start until rank 0 has
# left the first barrier, and until its end, in milliseconds; then the shortest of each. Where there is no barrier, until the first output.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/clusters/folders.sh
rig=$cache/rig-$$
export CLUSTER_RIG=$rig
. tools/clusters/managers.sh
hosts=tools/clusters/hosts.sh

host_count=8
ppn=8
rounds=7
wanted=()
tree=$target/launch-programs/tree
while [ $# -gt 1 ]; do
    case $1 in
    --hosts) host_count=$2 ;;
    --ppn) ppn=$2 ;;
    --rounds) rounds=$2 ;;
    --only) IFS=, read -ra wanted <<<"$2" ;;
    --programs) tree=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ $# -eq 0 ] || { sed -n '4,7s/^# \{0,3\}//p' "$0" >&2 && exit 2; }

longarm=$tree/bin/longarm
layout=$(layout_of "$host_count" "$ppn")
work=$target/launch-programs/times
mkdir -p "$work"

# A program that does nothing but start: as longarm's, as an MPI's, and as nobody's.
cat >"$work/longarm.c" <<'C'
#include <shmem.h>
#include <stdio.h>
int main(void)
{
    shmem_init();
    shmem_barrier_all();
    if (shmem_my_pe() == 0) {
        puts("met");
        fflush(stdout);
    }
    shmem_finalize();
    return 0;
}
C
cat >"$work/mpi.c" <<'C'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        puts("met");
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
C
cat >"$work/nothing.c" <<'C'
#include <stdio.h>
int main(void)
{
    puts("met");
    return 0;
}
C

# Name, process manager, what it needs of software.sh, program.
CONTENDERS=(
    "longarm-run|agents||longarm"
    "longarm-run-ssh|ssh|ssh|longarm"
    "hydra4-nothing|hydra4|hydra4|nothing"
    "hydra4-longarm|hydra4|hydra4|longarm"
    "hydra4-mpi|hydra4|hydra4|mpi-hydra4"
    "hydra5-mpi|hydra5|hydra5|mpi-hydra5"
    "prrte5-nothing|prrte5|prrte5|nothing"
    "prrte5-longarm|prrte5|prrte5|longarm"
    "prrte5-mpi|prrte5|prrte5|mpi-prrte5"
    "slurm-none-nothing|slurm-none|slurm|nothing"
    "slurm-none-longarm|slurm-none|slurm|longarm"
    "slurm-pmi2-nothing|slurm-pmi2|slurm|nothing"
    "slurm-pmi2-longarm|slurm-pmi2|slurm|longarm"
    "slurm-pmix-nothing|slurm-pmix|slurm|nothing"
    "slurm-pmix-longarm|slurm-pmix|slurm|longarm"
)

compile() {
    local program=$1 libraries
    case $program in
    longarm) "$tree/bin/oshcc" -O1 -o "$work/longarm" "$work/longarm.c" ;;
    nothing) cc -O1 -o "$work/nothing" "$work/nothing.c" ;;
    mpi-hydra4) mpicc.mpich -O1 -o "$work/$program" "$work/mpi.c" ;;
    mpi-hydra5 | mpi-prrte5)
        # Their own compilers' commands look for them where they were built.
        libraries=$cache/${program#mpi-}/lib
        cc -O1 -I"$cache/${program#mpi-}/include" -o "$work/$program" "$work/mpi.c" -L"$libraries" -lmpi -Wl,-rpath,"$libraries" \
            -Wl,--allow-shlib-undefined
        ;;
    esac
}

say() { printf 'start-times: %s\n' "$*"; }

# Prints when the first line came and when all was over, in milliseconds since the start.
once() {
    local began=${EPOCHREALTIME/./} first=0 line
    # A launcher that fails says so by its status.
    set -o pipefail
    timeout 100 "${at_n0[@]}" "${command[@]}" "$1" 2>"$work/errors" </dev/null | {
        while IFS= read -r line; do
            [ $first -ne 0 ] || [[ $line != met ]] || { first=${EPOCHREALTIME/./} && echo $(((first - began) / 1000)); }
        done
    } || return 1
    echo $(((${EPOCHREALTIME/./} - began) / 1000))
}

median() { sort -n "$1" | sed -n "$(((rounds + 1) / 2))p"; }

printf '%s\n' "${CONTENDERS[@]}" | cut -d'|' -f1,3 | fetch_wanted
"$hosts" up "$host_count" --owner $$
trap '"$hosts" down' EXIT
trap 'exit 130' INT TERM HUP
ready=()
for entry in "${CONTENDERS[@]}"; do
    IFS='|' read -r name manager software program <<<"$entry"
    is_wanted "$name" || continue
    if [ -n "$software" ] && ! tools/clusters/software.sh "$software"; then continue; fi
    case $software in
    ssh) [ -e "$rig/ssh" ] || "$hosts" sshd ;;
    slurm) [ -e "$rig/etc/slurm/slurm.conf" ] || "$hosts" slurm "$host_count" ;;
    esac
    if ! compile "$program" >"$work/$program.log" 2>&1; then
        say "$name is left out: its program cannot be compiled, see $work/$program.log"
        continue
    fi
    command_of "$manager" "$layout"
    # Once for nothing: files are read then.
    if ! once "$work/$program" >/dev/null; then
        say "$name is left out, it fails: $(tail -n 3 "$work/errors" | tr '\n' ' ')"
        continue
    fi
    ready+=("$name|$manager|$program")
    rm -f "$work/$name".{first,end}
done
say "load before: $(cut -d' ' -f1-3 /proc/loadavg); $host_count hosts, $((host_count * ppn)) ranks, $rounds rounds, $(nproc) processors"
for ((round = 0; round < rounds; round++)); do
    for entry in "${ready[@]}"; do
        IFS='|' read -r name manager program <<<"$entry"
        command_of "$manager" "$layout"
        { read -r first && read -r end; } < <(once "$work/$program") || { say "$name failed: $(tail -n 3 "$work/errors")" && exit 1; }
        echo "$first" >>"$work/$name.first"
        echo "$end" >>"$work/$name.end"
    done
done
say "load after: $(cut -d' ' -f1-3 /proc/loadavg)"
printf '| %-20s | %12s | %8s | %12s | %8s |\n' "" "to barrier" "to end" "shortest" "to end"
printf '| --- | --- | --- | --- | --- |\n'
for entry in "${ready[@]}"; do
    name=${entry%%|*}
    printf '| %-20s | %9s ms | %5s ms | %9s ms | %5s ms |\n' "$name" "$(median "$work/$name.first")" "$(median "$work/$name.end")" \
        "$(sort -n "$work/$name.first" | head -n 1)" "$(sort -n "$work/$name.end" | head -n 1)"
done
