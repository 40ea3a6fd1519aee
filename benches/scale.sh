#!/usr/bin/env bash
# How long jobs of few and of many ranks take, simulated and measured on this machine, with pictures:
#
#   benches/scale.sh FOLDER [RANKS]
#
# FOLDER gets lines of JSON and pictures. RANKS is the most to simulate with a processor each, 10000 by default, which takes minutes; through routers
# at most 2000.
set -euo pipefail

usage() {
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 2
}
[ $# -ge 1 ] && [ $# -le 2 ] || usage
folder=$1
most=${2:-10000}
case $most in
'' | *[!0-9]*)
    echo "scale: RANKS is a number, not $most" >&2
    exit 2
    ;;
esac
for program in longarm longarm-bench longarm-scale; do
    if ! command -v "$program" >/dev/null; then
        echo "scale: $program is not in the search path; make install brings it there" >&2
        exit 2
    fi
done
mkdir -p "$folder"
lines=$folder/lines.jsonl
: >"$lines"

# Ranks and nodes of the jobs that are measured, all on the processors of this machine.
for shape in 2:1 4:2 8:4 16:4 64:8 128:8 256:16; do
    ranks=${shape%:*} nodes=${shape#*:}
    echo "scale: $ranks ranks on $nodes nodes" >&2
    longarm run -n "$ranks" --nodes "$nodes" -- longarm-scale measure >>"$lines"
    shared=(--on shared --processors "$(nproc)" --ranks "$ranks" --per-node "$((ranks / nodes))")
    longarm-scale simulate "${shared[@]}" >>"$lines"
    [ "$nodes" -gt 1 ] || continue
    LONGARM_CONNECTIONS_MAX=0 longarm run -n "$ranks" --nodes "$nodes" -- longarm-scale measure --routers >>"$lines"
    longarm-scale simulate "${shared[@]}" --routers >>"$lines"
done
longarm-scale simulate --most "$most" >>"$lines"
# Real sockets between ranks and routers: more ranks need more descriptors than many systems allow.
longarm-scale simulate --routers --most "$((most < 2000 ? most : 2000))" >>"$lines"
longarm perf draw "$lines" --plot "$folder"
