#!/usr/bin/env bash
# Runs a command on one of the hosts of tools/ga/hosts.sh: at-host.sh [OPTION]... 198.51.100.1|198.51.100.2 COMMAND...
#
# Stands in for ssh where mpiexec starts its helpers on other hosts, so the options of ssh are passed over, and the words
# of the command are joined and read by a shell. Each host has a network, a host name and shared memory of
# System V of its own.
set -euo pipefail

while [[ ${1:-} == -* ]]; do
    case $1 in
    -o | -p | -l | -i) shift 2 ;;
    *) shift ;;
    esac
done
case ${1:-} in
198.51.100.1) name=a ;;
198.51.100.2) name=b ;;
*)
    printf 'at-host: usage: at-host.sh [OPTION]... 198.51.100.1|198.51.100.2 COMMAND...\n' >&2
    exit 2
    ;;
esac
shift
exec ip netns exec "longarm-$name" unshare --uts --ipc bash -c 'hostname "$1"; shift; exec bash -c "$*"' at-host "host-$name" "$@"
