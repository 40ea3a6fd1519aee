#!/usr/bin/env bash
# Hosts made up on this machine, to start jobs on, with what real hosts have. Needs root and iproute2.
#
#   hosts.sh up N [--owner PID]  makes n0, where one logs in, and n1 to nN, where jobs run, on one network
#   hosts.sh sshd                starts OpenSSH's server on each, with keys made on the spot
#   hosts.sh slurm [LAST]        starts Slurm: its controller on n0, its daemons on n1 to n2, or to nLAST
#   hosts.sh at HOST COMMAND...  runs a command there, in the folder and with the environment that it is called with
#   hosts.sh cut HOST            takes the host's link down, as if the cable had been pulled out
#   hosts.sh join HOST           puts it back
#   hosts.sh settle              what runs now belongs to the hosts, and what lies there too
#   hosts.sh leftovers           what is there besides: processes, sockets, files; status 1 if there is anything
#   hosts.sh processes HOST      the processes there besides, each with its name and arguments
#   hosts.sh clear               ends the processes there besides, and removes the files
#   hosts.sh down                takes all of it away
#
# A host is a network namespace with a host name, System V memory, /tmp, /run and /dev/shm of its own (host.sh). The hosts are
# reached by name, n3 say, or 198.51.100.4, from each other only. Beside them, in the folder CLUSTER_RIG, lie two commands
# that take a host and a command: `at` without a network between (at-host.sh), and `ssh`, which is the real one with these keys.
# With --owner, `down` comes by itself when that process ends, however it does.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/clusters/folders.sh

fail() {
    printf 'hosts: %s\n' "$*" >&2
    exit 1
}
usage() {
    sed -n '4,14s/^# \{0,3\}//p' "$0" >&2
    exit 2
}
names() { cat "$rig/names"; }
enter() {
    local pid
    pid=$(cat "$rig/$1.pid" 2>/dev/null) || fail "there is no host $1"
    shift
    nsenter --target "$pid" --uts --ipc --net --mount "$@"
}

up() {
    local count=${1:-2} name address
    [ "$(id -u)" -eq 0 ] || fail "making network namespaces needs root"
    command -v ip >/dev/null || fail "there is no ip command (Debian: apt-get install iproute2)"
    [ ! -e "$rig/names" ] || fail "these hosts are up; hosts.sh down takes them away"
    mkdir -p "$rig/etc" "$rig/logs"
    seq -f 'n%.0f' 0 "$count" >"$rig/names"
    trap 'down' ERR
    ip netns add "$spaces-net" 2>/dev/null || fail "no network namespace can be made"
    ip -n "$spaces-net" link add bridge type bridge
    ip -n "$spaces-net" addr add 198.51.100.254/24 dev bridge
    ip -n "$spaces-net" link set bridge up
    address=0
    for name in $(names); do
        address=$((address + 1))
        ip netns add "$spaces-$name"
        # Nobody else is here who could have an address already, which is what a host waits for otherwise.
        ip netns exec "$spaces-$name" sh -c 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad' 2>/dev/null || true
        ip link add eth0 netns "$spaces-$name" type veth peer name "$name" netns "$spaces-net"
        ip -n "$spaces-net" link set "$name" master bridge up
        ip -n "$spaces-$name" link set lo up
        ip -n "$spaces-$name" addr add "198.51.100.$address/24" dev eth0
        ip -n "$spaces-$name" link set eth0 up
        # As on a real host, something is the way to everywhere else.
        ip -n "$spaces-$name" route add default via 198.51.100.254
    done
    files
    for name in $(names); do
        # Nobody waits for it; its streams are not those of whoever has called this.
        setsid ip netns exec "$spaces-$name" unshare --uts --ipc --mount --propagation private \
            tools/clusters/host.sh "$rig" "$name" "$PWD" "$target" "$cache" "$rig" "$HOME" >"$rig/logs/$name" 2>&1 </dev/null 8>&- &
    done
    for name in $(names); do
        until [ -e "$rig/$name.pid" ]; do
            [ ! -s "$rig/logs/$name" ] || fail "$name cannot be made: $(cat "$rig/logs/$name")"
            sleep 0.02
        done
    done
    printf '#!/bin/sh\nCLUSTER_RIG=%q exec %q "$@"\n' "$rig" "$PWD/tools/clusters/at-host.sh" >"$rig/at"
    chmod 755 "$rig/at"
    settle
}

# What lies over /etc there.
files() {
    local name address=0 entry
    echo "127.0.0.1 localhost" >"$rig/etc/hosts"
    for name in $(names); do
        address=$((address + 1))
        echo "198.51.100.$address $name" >>"$rig/etc/hosts"
    done
    : >"$rig/etc/resolv.conf"
    echo "hosts: files" >"$rig/etc/nsswitch.conf"
    cp /etc/passwd /etc/group "$rig/etc"
    # Users that the servers want, where their packages are not installed.
    for entry in sshd:64100 munge:64101 slurm:64102; do
        grep -q "^${entry%:*}:" /etc/passwd && continue
        echo "${entry%:*}:x:${entry#*:}:${entry#*:}::/nonexistent:/usr/sbin/nologin" >>"$rig/etc/passwd"
        echo "${entry%:*}:x:${entry#*:}:" >>"$rig/etc/group"
    done
    # Overlaid files show through: what is not there cannot be bound later.
    mkdir -p "$rig/etc/slurm" "$rig/etc/munge"
}

sshd() {
    local name folder=$rig/keys
    mkdir -p "$folder"
    ssh-keygen -q -t ed25519 -N '' -C rig -f "$folder/host"
    ssh-keygen -q -t ed25519 -N '' -C rig -f "$folder/user"
    cp "$folder/user.pub" "$folder/authorized"
    echo "* $(cut -d' ' -f1,2 "$folder/host.pub")" >"$folder/known_hosts"
    # Paths may have spaces.
    cat >"$folder/sshd_config" <<CONFIG
HostKey "$folder/host"
AuthorizedKeysFile "$folder/authorized"
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
UseDNS no
PidFile none
CONFIG
    cat >"$folder/ssh_config" <<CONFIG
IdentityFile "$folder/user"
IdentitiesOnly yes
UserKnownHostsFile "$folder/known_hosts"
GlobalKnownHostsFile none
StrictHostKeyChecking yes
BatchMode yes
LogLevel ERROR
CONFIG
    printf '#!/bin/sh\nexec ssh -F %q "$@"\n' "$folder/ssh_config" >"$rig/ssh"
    chmod 755 "$rig/ssh"
    for name in $(names); do
        enter "$name" setsid /usr/sbin/sshd -D -f "$folder/sshd_config" >"$rig/logs/$name.sshd" 2>&1 </dev/null 8>&- &
    done
    for name in $(names); do
        until ip netns exec "$spaces-$name" ss -Hltn 'sport = 22' 2>/dev/null | grep -q .; do
            [ ! -s "$rig/logs/$name.sshd" ] || fail "sshd on $name says: $(cat "$rig/logs/$name.sshd")"
            sleep 0.02
        done
    done
    settle
}

slurm() {
    local last=${1:-2} name conf=$rig/etc/slurm/slurm.conf
    head -c 1024 /dev/urandom >"$rig/etc/munge/munge.key"
    chmod 400 "$rig/etc/munge/munge.key"
    cat >"$conf" <<CONFIG
ClusterName=rig
SlurmctldHost=n0
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation=/run/slurmctld
SlurmctldPidFile=/run/slurmctld.pid
SlurmctldLogFile=$rig/logs/slurmctld
SlurmdSpoolDir=/run/slurmd
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile=$rig/logs/slurmd-%n
TmpFS=/tmp
InactiveLimit=1
KillWait=2
SlurmdTimeout=10
MessageTimeout=5
NodeName=n[1-$last] CPUs=32 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
CONFIG
    echo "PMIxCliTmpDirBase=/tmp" >"$rig/etc/slurm/mpi.conf"
    # Found out by itself it is not: `ip netns exec` hides /sys/fs/cgroup.
    echo "CgroupPlugin=cgroup/v1" >"$rig/etc/slurm/cgroup.conf"
    for name in $(seq -f 'n%.0f' 0 "$last"); do
        enter "$name" sh -c 'mkdir -p /run/munge /run/slurmd /run/slurmctld && chmod 755 /run/munge'
        enter "$name" setsid /usr/sbin/munged --force --foreground --key-file=/etc/munge/munge.key --pid-file=/run/munge/pid \
            --seed-file=/run/munge/seed --log-file="$rig/logs/$name.munged.log" >"$rig/logs/$name.munged" 2>&1 </dev/null 8>&- &
    done
    for name in $(seq -f 'n%.0f' 0 "$last"); do
        until enter "$name" sh -c 'munge -n | unmunge' >/dev/null 2>&1; do sleep 0.05; done
    done
    enter n0 setsid /usr/sbin/slurmctld -D >"$rig/logs/n0.slurmctld" 2>&1 </dev/null 8>&- &
    for name in $(seq -f 'n%.0f' 1 "$last"); do
        enter "$name" setsid /usr/sbin/slurmd -D -N "$name" >"$rig/logs/$name.slurmd" 2>&1 </dev/null 8>&- &
    done
    local tries=0
    until [ "$(enter n0 sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" -eq "$last" ]; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || fail "Slurm does not come up; see $rig/logs"
        sleep 0.1
    done
    settle
}

# Process ids in the network namespaces of the hosts, each with its host, in one look at all processes.
members() {
    local inodes="" name
    for name in $(names); do
        inodes+="$(stat -L -c %i "/run/netns/$spaces-$name") $name"$'\n'
    done
    # A process may end meanwhile.
    { stat -L -c '%i %n' /proc/[0-9]*/ns/net 2>/dev/null || true; } |
        awk -v inodes="$inodes" 'BEGIN { count = split(inodes, lines, "\n"); for (i = 1; i < count; i++) { split(lines[i], words, " "); host[words[1]] = words[2] } }
            $1 in host { split($2, path, "/"); print path[3], host[$1] }'
}

# A process is named by its id and when it was started, for ids come again. One whose parent has not asked for its end yet is none.
identified() {
    awk '{
        file = "/proc/" $1 "/stat"
        if ((getline line < file) > 0) {
            close(file)
            sub(/.*\) /, "", line)
            split(line, fields, " ")
            if (fields[1] != "Z") print $1 "-" fields[20], $2
        }
    }' 2>/dev/null
}

# Sockets that listen or are connected, longarm's abstract ones, and files of the hosts' own, as HOST:WHAT. Where servers keep
# their files is theirs.
own_things() {
    local name
    for name in $(names); do
        enter "$name" sh -c 'ss -Hltn; ss -Htn state established state syn-sent; cat /proc/net/unix
            find /tmp /dev/shm /run -xdev -mindepth 1 \( -path "/run/slurm*" -o -path /run/munge -o -path /run/netns \) -prune -o -print' 2>/dev/null |
            awk -v host="$name" '
                $1 == "LISTEN" { print host ":socket " $4 }
                /^[0-9]+ +[0-9]+ +[0-9.:\[\]]+ +[0-9.:\[\]]+ *$/ { print host ":socket " $3 "-" $4 }
                /@.*longarm/ { print host ":socket " $NF }
                /^\// { print host ":" $0 }' || true
    done
}

settle() {
    members | identified | sort >"$rig/settled.processes"
    own_things | sort >"$rig/settled.things"
}

processes() {
    # What looks is no leftover: it is gone when it is asked for its name.
    members | identified | sort | comm -23 - "$rig/settled.processes" >"$rig/others"
    [ -s "$rig/others" ] || return 0
    ps -ww -o pid=,comm=,args= -p "$(cut -d- -f1 "$rig/others" | paste -sd,)" |
        awk -v file="$rig/others" -v host="${1:-}" '
            BEGIN { while ((getline line < file) > 0) { split(line, words, "[- ]"); hosts[words[1]] = words[3] } }
            { $1 = $1 } host == "" || hosts[$1] == host { print hosts[$1], $0 }'
}

# First the processes: while there are any, the rest is theirs.
leftovers() {
    local found
    found=$(processes)
    [ -n "$found" ] || found=$(own_things | sort | comm -23 - "$rig/settled.things")
    [ -z "$found" ] || { printf '%s\n' "$found" && return 1; }
}

clear_hosts() {
    local host pid rest place
    processes | while read -r host pid rest; do kill -9 "$pid" 2>/dev/null || true; done
    own_things | sort | comm -23 - "$rig/settled.things" | sort -r | while IFS= read -r place; do
        [[ $place != *:/* ]] || enter "${place%%:*}" rm -rf "${place#*:}" || true
    done
}

# The system may take a second to see that a link is back, and drops what is sent there until then. And an address that a host
# still asks for in vain is unreachable to who connects meanwhile.
join_host() {
    local name
    ip -n "$spaces-net" link set "$1" up
    until ip -n "$spaces-net" -br link show "$1" | grep -q ' UP ' && ip -n "$spaces-$1" -br link show eth0 | grep -q ' UP '; do
        sleep 0.02
    done
    for name in $(names); do ip -n "$spaces-$name" neigh flush dev eth0; done
}

down() {
    local name pid host
    trap - ERR
    [ -e "$rig/names" ] || return 0
    for name in net $(names); do
        # What is killed may have started something meanwhile.
        while pids=$(ip netns pids "$spaces-$name" 2>/dev/null) && [ -n "$pids" ]; do
            for pid in $pids; do kill -9 "$pid" 2>/dev/null || true; done
        done
        ip netns del "$spaces-$name" 2>/dev/null || true
    done
    rm -rf "$rig"
}

# In the background: waits for the end of a process, and takes all away then.
guard() {
    setsid bash -c 'tail --pid="$1" -f /dev/null; CLUSTER_RIG=$2 exec "$3" down' guard "$1" "$rig" "$PWD/tools/clusters/hosts.sh" \
        >/dev/null 2>&1 </dev/null 8>&- &
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
up)
    up "${1:-2}"
    [ "${2:-}" != --owner ] || guard "$3"
    ;;
sshd) sshd ;;
slurm) slurm "$@" ;;
at)
    host=${1:?}
    shift
    pid=$(cat "$rig/$host.pid" 2>/dev/null) || fail "there is no host $host"
    exec nsenter --target "$pid" --uts --ipc --net --mount "$@"
    ;;
cut) ip -n "$spaces-net" link set "${1:?}" down ;;
join) join_host "${1:?}" ;;
settle | leftovers | down) "$command" ;;
processes) processes "$@" ;;
clear) clear_hosts ;;
*) usage ;;
esac
