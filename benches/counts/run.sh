#!/usr/bin/env bash
# Prints how many instructions each hot call takes, counted by valgrind: two runs that differ in the number of calls
# only, so that start and end cancel out. The loop around the calls is taken off too.
#
#   benches/counts/run.sh [PATH-OF-longarm-bench]      default: built here, in release
set -euo pipefail

if ! command -v valgrind >/dev/null; then
    echo "counts: skipped, because valgrind is not installed"
    exit 0
fi

few=10000
many=60000
calls="put8 get8 fetch-add quiet accumulate8 put-rows start-put8 codec"

folder=$(cd "$(dirname "$0")/../.." && pwd)
bench=${1:-}
if [ -z "$bench" ]; then
    (cd "$folder" && cargo build --locked --release --quiet -p longarm-benches)
    bench=${CARGO_TARGET_DIR:-$folder/target}/release/longarm-bench
fi
if [ ! -x "$bench" ]; then
    echo "counts: $bench is no program" >&2
    exit 1
fi

# Instructions of the whole process for a call and a number of times.
collected() {
    local log
    if ! log=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null "$bench" counts "$1" "$2" 2>&1); then
        echo "$log" >&2
        return 1
    fi
    awk '/Collected/ { print $NF }' <<<"$log"
}

# Instructions of one call, with one decimal.
per_call() {
    local less more
    less=$(collected "$1" $few)
    more=$(collected "$1" $many)
    awk -v less="$less" -v more="$more" -v calls=$((many - few)) 'BEGIN { printf "%.1f", (more - less) / calls }'
}

loop=$(per_call empty)
printf '%-14s %s\n' call "instructions"
for call in $calls; do
    of_loop=$loop
    [ "$call" = codec ] && of_loop=0 # It has a loop of its own, which is counted in.
    awk -v call="$call" -v all="$(per_call "$call")" -v loop="$of_loop" \
        'BEGIN { printf "%-14s %.1f\n", call, all - loop }'
done
