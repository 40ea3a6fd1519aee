#!/usr/bin/env bash
# Prints how many instructions each hot call takes, counted by valgrind: two runs that differ in the number of calls
# only, so that start and end cancel out. The loop around the calls is taken off too.
#
#   benches/counts/run.sh [--check FILE] [PATH-OF-longarm-bench]      default: built here, in release
#
# --check fails if a call takes over a twentieth more, or less, than the file says: release.txt or dev.txt beside this one, by
# how the program was built (rustc 1.89 or later, x86_64; which one made them is in their first line). To renew a file, run this
# without --check and put its lines there.
set -euo pipefail

few=10000
many=60000
calls="put8 get8 fetch-add quiet accumulate8 put-rows start-put8 codec"

check=
if [ "${1:-}" = --check ]; then
    check=$2
    shift 2
fi
if ! command -v valgrind >/dev/null; then
    echo "counts: valgrind is not installed (Debian: apt-get install valgrind)" >&2
    exit 1
fi

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
    less=$(collected "$1" $few) || return 1
    more=$(collected "$1" $many) || return 1
    awk -v less="$less" -v more="$more" -v calls=$((many - few)) 'BEGIN { printf "%.1f", (more - less) / calls }'
}

loop=$(per_call empty)
changed=
printf '%-14s %s\n' call "instructions"
for call in $calls; do
    of_loop=$loop
    [ "$call" = codec ] && of_loop=0 # It has a loop of its own, which is counted in.
    all=$(per_call "$call")
    found=$(awk -v all="$all" -v loop="$of_loop" 'BEGIN { printf "%.1f", all - loop }')
    printf '%-14s %s\n' "$call" "$found"
    if [ -n "$check" ]; then
        expected=$(awk -v call="$call" '$1 == call { print $2 }' "$check")
        if [ -z "$expected" ] || awk -v found="$found" -v expected="$expected" \
            'BEGIN { exit !(found > 1.05 * expected + 2 || found < 0.95 * expected - 2) }'; then
            changed+=" $call ($found, expected ${expected:-nothing})"
        fi
    fi
done
made_by=$(sed -n 's/^# rustc //p' "${check:-/dev/null}")
this=$(rustc --version | awk '{ print $2 }')
if [ -n "$check" ] && [ "$made_by" != "$this" ]; then
    echo "counts: not compared, because $check was made by rustc $made_by and this is $this"
    exit 0
fi
if [ -n "$changed" ]; then
    echo "counts: other numbers of instructions than $check says:$changed" >&2
    exit 1
fi
