#!/usr/bin/env bash
# Measures longarm over RDMA devices beside perftest, in one run of the virtual machine of tools/rdma-vm:
#
#   measure.sh FOLDER      leaves there figures.md, lines.json, and the curves by size as SVG
#   measure.sh --latency   says the first two rows only, of programs that are built, with perftest and longarm in turns
#
# The machine emulates its processor: figures say something beside those of the same run, and nothing else.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

say() { printf 'measure: %s\n' "$*" >&2; }

# One figure of perftest: program, bytes, repetitions, which column. Bandwidths are megabytes of 2^20 bytes.
# Nobody is bound to a processor: where both sides are, each to its own, perftest's latency too is 4 ms, for who moves the packets of
# soft-RoCE waits until the system takes a processor away from one of them.
perftest() {
    local program=$1 bytes=$2 times=$3 column=$4 server
    "$program" -d rxe1 -x 1 -F -s "$bytes" -n "$times" >/dev/null 2>&1 &
    server=$!
    # It listens when it has a port.
    until ss -Hltn "sport = :18515" | grep -q .; do kill -0 "$server" 2>/dev/null || return 1; done
    "$program" -d rxe0 -x 1 -F -s "$bytes" -n "$times" 10.77.0.2 2>/dev/null |
        awk -v bytes="$bytes" -v column="$column" '$1 == bytes { print $column }'
    wait "$server"
}

perftest_latency() {
    printf '{"peer":"perftest","transport":"verbs","op":"%s","bytes":8,"lat_us":%s}\n' \
        "${1}_lat" "$(perftest "ib_${1}_lat" 8 1000 5)"
}

# All that perftest measures here, as lines like those of longarm.
perftest_lines() {
    local name what bytes
    for what in write read; do
        perftest_latency "$what"
        for bytes in 65536 1048576; do
            printf '{"peer":"perftest","transport":"verbs","op":"%s","bytes":%s,"mib_s":%s}\n' \
                "${what}_bw" "$bytes" "$(perftest "ib_${what}_bw" "$bytes" $((20971520 / bytes + 20)) 4)"
        done
    done
}

# A job of two ranks on two nodes. Its lines are called after the way that transfers take.
longarm() {
    local way=$1 suite=$2
    shift 2
    # shellcheck disable=SC2086 # No word, or one.
    env "$@" "$programs/longarm" run -n 2 --nodes 2 --timeout 200 -- \
        "$programs/longarm-bench" rank "$suite" --transport verbs $quick | sed "s/\"peer\":\"longarm\"/\"peer\":\"$way\"/"
}

# Puts of memory that the cache has room for in part: their line, with what the job counted.
cached() {
    local bytes=$1
    LONGARM_VERBS_CACHE_BYTES=$bytes "$programs/longarm" run -n 2 --nodes 2 --timeout 200 --json \
        --stats-file /tmp/measure -- "$programs/longarm-bench" rank buffers --transport verbs |
        jq -s -c --arg cache "$bytes" '
            def count(name): [.. | objects | select(.name? == name) | .total] | add // 0;
            . as $all | first(.[] | select(.op? == "put_from_many"))
            | . + {peer: "cache", cache: $cache, found: ($all | count("registrations found")),
                made: ($all | count("registrations made")), evicted: ($all | count("registrations evicted"))}'
}

# In the machine.
if [ "${1:-}" = --inside ] || [ "${1:-}" = --inside-latency ]; then
    programs=$2
    export LONGARM_NETMOD=verbs LONGARM_VERBS_DEVICE=rxe0,rxe1
    export LONGARM_SILENCE_MS=20000 LONGARM_WATCHDOG_S=0 LONGARM_CONNECT_TIMEOUT_S=60
    quick=
    if [ "$1" = --inside-latency ]; then
        for _ in 1 2 3; do
            perftest_latency write
            longarm longarm pingpong
            perftest_latency read
            longarm longarm short
        done
        exit
    fi
    perftest_lines
    longarm longarm pingpong
    longarm longarm short
    for bytes in 1m 2m 3m 8m; do
        cached "$bytes"
    done
    quick=--quick
    longarm "zero copy" latency LONGARM_VERBS_REGISTER_BYTES=4k
    # One buffer takes the whole of up to a mebibyte: copied, then sent.
    longarm "copied, then sent" latency LONGARM_VERBS_REGISTER_BYTES=1t LONGARM_VERBS_SLAB_BYTES=1m LONGARM_VERBS_CREDITS=4
    longarm "copied, pipelined" latency LONGARM_VERBS_REGISTER_BYTES=1t
    perftest_lines
    exit
fi

[ $# -eq 1 ] || {
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
command -v jq >/dev/null || {
    say "there is no jq (Debian: apt-get install jq)"
    exit 1
}
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
if [ "$1" = --latency ]; then
    tools/rdma-vm/run --memory-mb 4096 --limit-seconds 300 --folder "$PWD" \
        tools/verbs/measure.sh --inside-latency "$target/release" |
        jq -r 'select(.op == "write_lat" or .op == "put_one_way" or .op == "read_lat" or (.op == "get" and .bytes == 8))
            | "\(.op) \(.lat_us)"'
    exit
fi
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 1
say "building"
cargo build --locked --quiet --release -p longarm-launch -p longarm-benches \
    --features longarm-launch/verbs,longarm-benches/verbs --bins || exit 1
say "measuring"
tools/rdma-vm/run --memory-mb 4096 --limit-seconds 600 --folder "$PWD" \
    tools/verbs/measure.sh --inside "$target/release" >"$out/lines.json" || exit 1

# The best of perftest's runs before and after is what longarm is held against.
figure() { jq -s -r "[.[] | select($1)] | map($2) | $3" "$out/lines.json"; }
row() {
    local what=$1 unit=$2 digits=$3 ours=$4 theirs=$5 program=$6 rule=$7
    awk -v what="$what" -v unit="$unit" -v digits="$digits" -v ours="$ours" -v theirs="$theirs" -v program="$program" \
        -v rule="$rule" 'BEGIN {
            printf "| %s | %.*f %s | `%s`: %.*f %s | %.2f | %s |\n",
                what, digits, ours, unit, program, digits, theirs, unit, ours / theirs, rule }'
}
{
    printf '| what | longarm | perftest | ratio | bar |\n| --- | --: | --: | --: | --- |\n'
    row "put of 8 B, one way, as a ping-pong" µs 1 "$(figure '.op == "put_one_way"' .lat_us min)" \
        "$(figure '.op == "write_lat"' .lat_us min)" ib_write_lat "at most 1.3"
    row "get of 8 B" µs 1 "$(figure '.peer == "longarm" and .op == "get" and .bytes == 8' .lat_us min)" \
        "$(figure '.op == "read_lat"' .lat_us min)" ib_read_lat "at most 1.3"
    for entry in put:write get:read; do
        for bytes in 65536 1048576; do
            op=${entry%:*} name=${entry#*:} size="$((bytes >> 10)) KiB"
            [ "$bytes" -lt 1048576 ] || size="$((bytes >> 20)) MiB"
            row "$op of $size, zero copy" MB/s 0 \
                "$(figure ".peer == \"zero copy\" and .op == \"$op\" and .bytes == $bytes" .mbps max)" \
                "$(figure ".op == \"${name}_bw\" and .bytes == $bytes" '.mib_s * 1.048576' max)" "ib_${name}_bw" "at least 0.8"
        done
    done
    printf '| put of 8 B and quiet, there and back | %.1f µs | | | |\n' \
        "$(figure '.peer == "longarm" and .op == "put" and .bytes == 8' .lat_us min)"

    # The three ways by size.
    printf '\n| bytes '
    for op in put get; do
        printf '| %s, copied, then sent | %s, copied, pipelined | %s, zero copy ' $op $op $op
    done
    printf '|\n| --- | --: | --: | --: | --: | --: | --: |\n'
    for bytes in 4096 16384 65536 262144 1048576 4194304; do
        [ "$bytes" -ge 1048576 ] && printf '| %d MiB ' $((bytes >> 20)) || printf '| %d KiB ' $((bytes >> 10))
        for op in put get; do
            for way in "copied, then sent" "copied, pipelined" "zero copy"; do
                figure ".peer == \"$way\" and .op == \"$op\" and .bytes == $bytes" .lat_us min |
                    awk '{ printf "| %.3g ms ", $1 / 1000 }'
            done
        done
        printf '|\n'
    done

    # What the cache of registrations is worth.
    printf '\n| the cache may hold | found | made | evicted | hit rate | put of 256 KiB |\n| --- | --: | --: | --: | --: | --: |\n'
    jq -r 'select(.peer == "cache") | [.cache, .found, .made, .evicted, .lat_us] | @tsv' "$out/lines.json" |
        awk '{ sub("m", " MiB", $1); $0 = $0; printf "| %s %s | %d | %d | %d | %.0f %% | %.2f ms |\n", $1, $2, $3, $4, $5, 100 * $3 / ($3 + $4), $6 / 1000 }'
} >"$out/figures.md"
cat "$out/figures.md"
jq -c 'select(.peer == "zero copy" or (.peer | startswith("copied")))' "$out/lines.json" >"$out/curves.json"
"$target/release/longarm" perf draw "$out/curves.json" --plot "$out"
