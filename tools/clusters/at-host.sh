#!/usr/bin/env bash
# Runs a command on a host of tools/clusters/hosts.sh: at-host.sh [OPTION]... [USER@]HOST [COMMAND...]
#
# Stands in for ssh where jobs are started: the options of ssh are passed over, the words of the command are joined and read by
# a shell, which begins at home, with the environment that ssh gives. Unlike ssh's, the streams cross no network.
# CLUSTER_RIG says whose hosts; the rig's own command `at`, which hosts.sh writes, says it itself.
set -euo pipefail

while [[ ${1:-} == -* ]]; do
    case $1 in
    -o | -p | -l | -i | -F | -S | -E | -b | -c | -m) shift 2 ;;
    *) shift ;;
    esac
done
if [ $# -eq 0 ]; then
    printf 'at-host: usage: at-host.sh [OPTION]... [USER@]HOST [COMMAND...]\n' >&2
    exit 2
fi
name=${1##*@}
shift
# By address, too.
case $name in 198.51.100.*) name=n$((${name##*.} - 1)) ;; esac
if ! pid=$(cat "$CLUSTER_RIG/$name.pid" 2>/dev/null); then
    printf 'at-host: Could not resolve hostname %s: Name or service not known\n' "$name" >&2
    exit 255
fi
enter=(nsenter --target "$pid" --uts --ipc --net --mount)
exec "${enter[@]}" env --chdir "$HOME" -i HOME="$HOME" USER="${USER:-root}" LOGNAME="${USER:-root}" SHELL=/bin/bash \
    PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin bash -c "$*"
