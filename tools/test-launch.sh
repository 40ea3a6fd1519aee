#!/usr/bin/env bash
# What `make test-launch` runs: jobs on several hosts, started in every way there is, and killed in every way.
#
#   test-launch.sh [OPTION]... [PART]...     these parts, or all; slurm, say, stands for all that begin so
#
#   --list         says which parts there are
#   --rounds N     how often each kind of process is killed (50)
#   --links N      how often links are cut, which takes longest (as --rounds says)
#   --kinds NAMES  only these are killed: launcher, agent, early (an agent, before any rank has asked for the others), rank, link,
#                  separated by commas
#   --only-kills   no jobs are run to their end
#   --quick        what fits into make test: few jobs, killed a few times, and what is built there
#   --built        nothing is built: what the last run has built is used
#   --seed N       decides when what is killed
#
# The hosts are those of tools/clusters/hosts.sh, so it needs root; what cannot be had is left out with a word. Whatever happens,
# the hosts are taken away at the end, with all that runs on them.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tools/steps.sh
. tools/clusters/folders.sh
# Runs at once have hosts of their own.
rig=$cache/rig-$$
export CLUSTER_RIG=$rig
. tools/clusters/managers.sh
hosts=tools/clusters/hosts.sh
programs=$target/launch-programs
longarm=$programs/tree/bin/longarm

# Name, what it needs of tools/clusters/software.sh, what it is.
PARTS=(
    "agents||longarm run on several hosts, its agents started without a network"
    "ssh|ssh|longarm run on several hosts, its agents started by ssh"
    "hydra4|hydra4|MPICH 4's hydra, PMI-1 over a descriptor"
    "hydra4-port|hydra4|MPICH 4's hydra, PMI-1 over a port"
    "hydra5|hydra5|MPICH 5's hydra, PMI-1"
    "impi|impi|Intel's hydra, PMI-1"
    "openmpi4|openmpi4|Open MPI 4's mpirun, PMIx"
    "prrte5|prrte5|Open MPI 5's prterun, PMIx"
    "slurm-none|slurm|srun without PMI: MUNGE proves who is who"
    "slurm-pmi2|slurm|srun with PMI-1, which its plug-in pmi2 speaks"
    "slurm-pmix|slurm|srun with PMIx"
    "slurm-run|slurm|longarm run in an allocation of Slurm's, its agents started by srun"
)
QUICK=(agents ssh hydra4)
# How many ranks each host has.
LAYOUTS=(1,1 3,1 2,3,1 1,1,1,1 5,2,7,2 9,4,11,8)
LAYOUTS_QUICK=(1,1 3,1,2)
KINDS=(launcher agent early rank link)
# How long a rank waits there before it asks, in seconds.
EARLY_S=2
# The arguments of a rank of a job that is killed.
A_RANK='^ *[^ ]* [^ ]*/endless'
# Whoever has not come to an end by then hangs. A host that does not answer is given up after 60 s.
HANG_S=90
rounds=
links=
quick=
built=
wanted=()
seed=$$

say() { printf 'test-launch: %s\n' "$*"; }
usage() {
    sed -n '4,14s/^# \{0,3\}//p' "$0" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
    --list)
        printf '%s\n' "${PARTS[@]}" | awk -F'|' '{ printf "%-12s %s\n", $1, $3 }'
        exit 0
        ;;
    --rounds) rounds=${2:-} && shift ;;
    --links) links=${2:-} && shift ;;
    --kinds) IFS=, read -ra KINDS <<<"${2:-}" && shift ;;
    --built) built=yes ;;
    --only-kills) LAYOUTS=() ;;
    --seed) seed=${2:-} && shift ;;
    --quick)
        quick=yes
        [ ${#LAYOUTS[@]} -eq 0 ] || LAYOUTS=("${LAYOUTS_QUICK[@]}")
        ;;
    -*) usage ;;
    *)
        mapfile -t found < <(printf '%s\n' "${PARTS[@]}" | cut -d'|' -f1 | grep -x -- "$1\(-.*\)\?")
        [ ${#found[@]} -gt 0 ] || { say "there is no part $1; --list says which there are" >&2 && exit 2; }
        wanted+=("${found[@]}")
        ;;
    esac
    shift || usage
done
[ -n "$rounds" ] || rounds=$([ -n "$quick" ] && echo 2 || echo 50)
[ -n "$links" ] || links=$rounds
[[ $rounds =~ ^[0-9]+$ && $links =~ ^[0-9]+$ && $seed =~ ^[0-9]+$ ]] || usage
[[ ${#KINDS[@]} -gt 0 && " ${KINDS[*]} " =~ ^(\ (launcher|agent|early|rank|link))+\ $ ]] || usage
RANDOM=$seed
say "--seed $seed repeats when what is killed"
[ ${#wanted[@]} -gt 0 ] || [ -z "$quick" ] || wanted=("${QUICK[@]}")

# The programs, linked with an installed longarm; in make test with what was built there.
build() {
    local tree=$programs/tree source
    mkdir -p "$tree/bin" "$tree/include"
    if [ -n "$quick" ]; then
        # The whole workspace, as `make test` has it: for fewer packages cargo picks other features of dependencies, and builds all again.
        cargo build --locked --workspace --exclude longarm-verbs --lib --bins --examples || return 1
        install -m 755 "$target/debug/longarm" "$tree/bin"
        shims/build-library.sh "$target/debug/liblongarm_armci.a" "$tree/lib" || return 1
        install -m 644 shims/armci/include/*.h "$tree/include"
        shims/shmem/install.sh "$target/debug/liblongarm_shmem.a" "$tree" || return 1
        ln -sf "$target/debug/examples/pagerank" "$programs/pagerank"
    else
        make --no-print-directory install PREFIX="$tree" DESTDIR= || return 1
        cargo build --locked --release -p longarm --example pagerank || return 1
        ln -sf "$target/release/examples/pagerank" "$programs/pagerank"
    fi
    for source in shims/shmem/examples/stencil.c tools/clusters/endless.c; do
        "$tree/bin/oshcc" -std=gnu11 -O1 -o "$programs/$(basename "$source" .c)" "$source" -lm || return 1
    done
    cc -std=c99 -O1 -DRANKS_MAX=64 -I"$tree/include" -o "$programs/accumulate" shims/armci/tests/c/accumulate.c -L"$tree/lib" -larmci \
        -Wl,-rpath,"$tree/lib" -lpthread -lm
}

# What the program says where it was right. A world of one, beside others, says it too, but not for so many ranks or too often.
said() {
    case $1 in
    pagerank) echo "largest difference from the serial scores:" ;;
    *) echo "ok $1" ;;
    esac
}

# Runs one program and looks at what came of it: the manager, the layout, the program.
job() {
    local manager=$1 layout=$2 program=$3 status=0 output=$rig/output began=${EPOCHREALTIME/./}
    command_of "$manager" "$layout"
    timeout --kill-after=5 "$HANG_S" "${at_n0[@]}" "${command[@]}" "$programs/$program" >"$output" 2>&1 </dev/null || status=$?
    local took=$(((${EPOCHREALTIME/./} - began) / 1000)) wrong=
    [ "$status" -eq 0 ] || wrong="status $status"
    [ "$(grep -ac "$(said "$program")" "$output")" -eq 1 ] || wrong+=" it says that it is right $(grep -ac "$(said "$program")" "$output") times"
    [ "$program" != pagerank ] || grep -aq "; $(ranks_of "$layout") ranks on $(host_count_of "$layout") nodes" "$output" || wrong+=" ranks or nodes are others"
    if [ -z "$wrong" ] && await "$manager" >"$rig/left"; then
        say "$manager $layout $program: right, in $took ms"
        return
    fi
    say "$manager $layout $program: WRONG: $wrong; ${command[*]}"
    tail -n 40 "$output" | sed 's/^/    /'
    sed 's/^/    left: /' "$rig/left"
    tidy "$manager"
    return 1
}

# Ends what is left all the same, so that the next job finds the hosts as this one did.
tidy() {
    "$hosts" clear
    [[ $1 == slurm-* ]] || return 0
    "${at_n0[@]}" sh -c 'scancel --user=root; scontrol update nodename=ALL state=resume' >/dev/null 2>&1
    # Whoever looks for those of the next job would take one that is still ending for them.
    local began=$SECONDS
    while "$hosts" processes | grep -q slurmstepd && [ $((SECONDS - began)) -lt "$HANG_S" ]; do sleep 0.05; done
}

is_ours() { [ "$1" = agents ] || [ "$1" = ssh ] || [ "$1" = slurm-run ]; }

# Waits until nothing is left on the hosts, and prints what is left if something stays: the manager; what was killed, if
# anything was; the launcher, if it may go on.
await() {
    local began=$SECONDS
    # That something is left is no failure of the pipe.
    while { "$hosts" leftovers || true; } | has_to_go "$@" >"$rig/leftovers"; do
        [ $((SECONDS - began)) -lt "$HANG_S" ] || { cat "$rig/leftovers" && return 1; }
        # That takes ten seconds and more, in which the ranks that look for a sign of life need the processors.
        [ "${2:-}" != link ] || sleep 0.2
    done
}

# Of what is left, what has to go. What other process managers keep is their own affair, and so is a session of sshd whose client
# is beyond a cut link. The status is 0 if there is anything.
has_to_go() {
    case $1-${2:-} in
    ssh-link) grep -v '^[^ ]* [0-9]* sshd ' ;;
    agents-* | ssh-*) grep . ;;
    slurm-run-*) grep -v '^[^ ]* [0-9]* slurmstepd ' ;;
    *) grep -E '^n[0-9]+ [0-9]+ |longarm' | grep -vE "$(agents_of "$1")" | grep -v "^n0 ${3:-none} " ;;
    esac
}

# The processes on the hosts whose name and arguments match a pattern, and no shell that has only started one, a line each.
matching() {
    "$hosts" processes | awk -v pattern="$1" '{ pid = $2; name = $3; $1 = $2 = ""; if ($0 ~ pattern && name !~ /^(ba)?sh$/) print pid }'
}

# A process on a host, any of those that match: the launcher, which ends the search when it is gone, the pattern.
one_of() {
    local found=()
    while [ -e "/proc/$1" ] && [ ${#found[@]} -eq 0 ]; do
        mapfile -t found < <(matching "$2")
    done
    [ ${#found[@]} -eq 0 ] || echo "${found[RANDOM % ${#found[@]}]}"
}

# Waits for a launcher, prints its status, and ends it if it hangs.
status_of() {
    local began=$SECONDS status=0
    while [ -e "/proc/$1" ] && [ $((SECONDS - began)) -lt "$HANG_S" ]; do sleep 0.02; done
    if [ -e "/proc/$1" ]; then
        kill -9 "$1"
        status=hangs
    fi
    wait "$1" 2>/dev/null || status=${status/#0/$?}
    launcher_status=$status
}

# Waits until a launcher's ranks are at work. The status is not 0 if they never are.
await_work() {
    local began=$SECONDS
    until grep -aq ' at work' "$rig/output"; do
        [ -e "/proc/$1" ] && [ $((SECONDS - began)) -lt "$HANG_S" ] || return 1
        sleep 0.02
    done
}

# Waits until a launcher has started so many ranks. The status is not 0 if it never does.
await_ranks() {
    local began=$SECONDS
    until [ "$(matching "$A_RANK" | wc -l)" -ge "$2" ]; do
        [ -e "/proc/$1" ] && [ $((SECONDS - began)) -lt "$HANG_S" ] || return 1
        sleep 0.02
    done
}

# One job that is killed: the manager, the layout, which kind of process, when at the latest, in milliseconds. Sets `took_ms`.
kill_one() {
    local manager=$1 layout=$2 stage=$3 wait_ms=$((RANDOM % ($4 + 1))) pid victim="" began wrong="" output=$rig/output
    command_of "$manager" "$layout"
    local program=("$programs/endless")
    [ "$stage" != early ] || program+=("$EARLY_S") wait_ms=0
    setsid "${at_n0[@]}" "${command[@]}" "${program[@]}" >"$output" 2>&1 </dev/null &
    pid=$!
    sleep "$((wait_ms / 1000)).$(printf '%03d' $((wait_ms % 1000)))"
    # Who waits in another's process manager until all have come hears nothing of a cut link, as little as that one does.
    [ "$stage" != link ] || is_ours "$manager" || await_work "$pid" || wrong="not all ranks came to work; "
    # And salloc waits for a host that is not there to be given.
    [ "$stage-$manager" != link-slurm-run ] || one_of "$pid" '^ *[^ ]* [^ ]*[l]ongarm run ' >/dev/null
    : >"$rig/left"
    case $stage in
    # What has started it there is salloc, which is Slurm's.
    launcher)
        victim=$pid
        [ "$manager" != slurm-run ] || victim=$(one_of "$pid" '^ *[^ ]* [^ ]*[l]ongarm run ')
        ;;
    link) victim=n$((1 + RANDOM % $(host_count_of "$layout"))) ;;
    agent) victim=$(one_of "$pid" "$(agents_of "$manager")") ;;
    early)
        await_ranks "$pid" "$(ranks_of "$layout")" || wrong="not all ranks were started; "
        victim=$(one_of "$pid" "$(agents_of "$manager")")
        ;;
    rank) victim=$(one_of "$pid" "$A_RANK") ;;
    esac
    began=${EPOCHREALTIME/./}
    case $stage in
    link) "$hosts" cut "$victim" ;;
    *) [ -z "$victim" ] || kill -9 "$victim" 2>/dev/null ;;
    esac
    # Who has started the ranks and sees nothing of a cut link waits for ever, and so does srun with PMIx, whatever the program, for a host
    # whose slurmstepd was killed before its tasks had begun. Their ranks may not.
    if { [ "$stage" = link ] && ! is_ours "$manager"; } || { [ "$stage-$manager" = agent-slurm-pmix ] && ! grep -aq ' at work' "$output"; }; then
        await "$manager" "$stage" "$pid" >"$rig/left" || wrong="ranks go on; "
        kill -9 "$pid" 2>/dev/null
    fi
    status_of "$pid"
    case $manager-$stage-$launcher_status in
    # That is what PRRTE says of it, and salloc of what was killed in its allocation.
    prrte5-agent-0 | prrte5-early-0 | slurm-run-launcher-0) ;;
    *-0 | *-hangs) wrong+="the status of the launcher: $launcher_status; " ;;
    esac
    await "$manager" "$stage" >>"$rig/left" || wrong+="something is left"
    took_ms=$(((${EPOCHREALTIME/./} - began) / 1000))
    [ "$stage" != link ] || "$hosts" join "$victim"
    tidy "$manager"
    [ -n "$wrong" ] || return 0
    say "$manager $layout, $stage ($victim) killed after $wait_ms ms: WRONG: $wrong"
    tail -n 20 "$output" | sed 's/^/    /'
    sed 's/^/    left: /' "$rig/left"
    return 1
}

# How long a job takes until all its ranks are at work, in milliseconds.
start_ms_of() {
    local manager=$1 layout=$2 pid began=${EPOCHREALTIME/./} output=$rig/output
    command_of "$manager" "$layout"
    setsid "${at_n0[@]}" "${command[@]}" "$programs/endless" >"$output" 2>&1 </dev/null &
    pid=$!
    until grep -aq ' at work' "$output" || [ ! -e "/proc/$pid" ]; do sleep 0.01; done
    start_ms=$(((${EPOCHREALTIME/./} - began) / 1000))
    kill -TERM "$pid" 2>/dev/null
    status_of "$pid"
    await "$manager" rank >/dev/null
    tidy "$manager"
}

kills() {
    local manager=$1 layout=$2 stage count round bad took_ms launcher_status longest times start_ms failed=0
    start_ms_of "$manager" "$layout"
    say "$manager $layout: all are at work after $start_ms ms"
    for stage in "${KINDS[@]}"; do
        bad=0 longest=0 times=() count=$rounds
        [ "$stage" != link ] || count=$links
        [ "$count" -gt 0 ] || continue
        for ((round = 0; round < count; round++)); do
            # Half of them before all are there.
            # The shell tells of everything that is killed, which is not news here.
            kill_one "$manager" "$layout" "$stage" $((start_ms * 2)) 2>>"$rig/logs/kills" || bad=$((bad + 1))
            times+=("$took_ms")
        done
        longest=$(printf '%s\n' "${times[@]}" | sort -n | tail -n 1)
        say "$manager $layout: $stage killed $count times, $bad wrong; nothing left after $(printf '%s\n' "${times[@]}" | sort -n | sed -n $(((count + 1) / 2))p) ms (median), $longest ms at most"
        [ $bad -eq 0 ] || failed=1
    done
    return $failed
}

part() {
    local manager=$1 layout program failed=0
    for layout in "${LAYOUTS[@]}"; do
        for program in pagerank stencil accumulate; do
            job "$manager" "$layout" "$program" || failed=1
        done
    done
    [ $((rounds + links)) -eq 0 ] || kills "$manager" 2,1,2 || failed=1
    return $failed
}

# Brings up what a part needs, once: its name, its software. Says why not if it cannot be.
ready() {
    case $1 in
    agents | ssh | slurm-run)
        "$longarm" run --help | grep -q -- --hosts || { echo "longarm run starts ranks on this machine only" && return 1; }
        ;;
    esac
    [ -n "$2" ] || return 0
    # It is there already, or this says again why it is not.
    tools/clusters/software.sh "$2" || return 1
    case $2 in
    ssh) [ -e "$rig/ssh" ] || "$hosts" sshd ;;
    slurm) [ -e "$rig/etc/slurm/slurm.conf" ] || "$hosts" slurm 4 ;;
    esac
}

fetch() { printf '%s\n' "${PARTS[@]}" | cut -d'|' -f1,2 | fetch_wanted; }

prepare() {
    "$hosts" up 4 --owner $$ || return 1
    trap '"$hosts" down; rm -f "$log"' EXIT
    trap 'exit 130' INT TERM HUP
}

if [ -z "$built" ]; then
    step build build
elif [ ! -x "$programs/accumulate" ]; then
    say "nothing is built here yet: leave out --built" >&2
    exit 2
fi
step fetch fetch
if [ "$(id -u)" -ne 0 ]; then
    skip hosts "only root can make hosts up"
elif ! prepare; then
    skip hosts "no hosts can be made up here"
else
    for entry in "${PARTS[@]}"; do
        IFS='|' read -r name software what <<<"$entry"
        is_wanted "$name" || continue
        if missing=$(ready "$name" "$software"); then
            step "$name" part "$name"
        else
            skip "$name" "${missing##*$'\n'}"
        fi
    done
fi
finish
