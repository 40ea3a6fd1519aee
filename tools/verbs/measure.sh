#!/usr/bin/env bash
# Measures longarm over RDMA devices beside perftest, in one run of the virtual machine of tools/rdma-vm:
#
#   measure.sh FOLDER      leaves there figures.md, lines.json, and the curves by size as SVG
#
# The machine emulates its processor: figures say something beside those of the same run, and nothing else.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

say() { printf 'measure: %s\n' "$*" >&2; }

# One figure of perftest: program, bytes, repetitions, which column. Bandwidths are megabytes of 2^20 bytes.
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

# All that perftest measures here, as lines like those of longarm.
perftest_lines() {
    local name what bytes
    for what in write read; do
        printf '{"peer":"perftest","transport":"verbs","op":"%s","bytes":8,"lat_us":%s}\n' \
            "${what}_lat" "$(perftest "ib_${what}_lat" 8 1000 5)"
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
    env "$@" "$programs/longarm" run -n 2 --nodes 2 --timeout 200 -- \
        "$programs/longarm-bench" rank "$suite" --transport verbs --quick | sed "s/\"peer\":\"longarm\"/\"peer\":\"$way\"/"
}

# In the machine.
if [ "${1:-}" = --inside ]; then
    programs=$2
    export LONGARM_NETMOD=verbs LONGARM_VERBS_DEVICE=rxe0,rxe1
    export LONGARM_SILENCE_MS=20000 LONGARM_WATCHDOG_S=0 LONGARM_CONNECT_TIMEOUT_S=60
    perftest_lines
    longarm longarm pingpong
    longarm longarm short
    longarm "zero copy" latency LONGARM_VERBS_REGISTER_BYTES=4k
    # One buffer takes the whole of up to a mebibyte: copied, then sent.
    longarm "copied, then sent" latency LONGARM_VERBS_REGISTER_BYTES=1t LONGARM_VERBS_SLAB_BYTES=1m LONGARM_VERBS_CREDITS=4
    longarm "copied, pipelined" latency LONGARM_VERBS_REGISTER_BYTES=1t
    perftest_lines
    exit
fi

[ $# -eq 1 ] || {
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
command -v jq >/dev/null || {
    say "there is no jq (Debian: apt-get install jq)"
    exit 1
}
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 1
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
say "building"
cargo build --locked --quiet --release -p longarm-launch -p longarm-benches \
    --features longarm-launch/verbs,longarm-benches/verbs --bins || exit 1
say "measuring"
tools/rdma-vm/run --memory-mb 4096 --limit-seconds 600 --folder "$PWD" \
    tools/verbs/measure.sh --inside "$target/release" >"$out/lines.json" || exit 1

# The best of perftest's runs before and after is what longarm is held against.
figure() { jq -s -r "[.[] | select($1)] | map($2) | $3" "$out/lines.json"; }
row() {
    local what=$1 ours=$2 theirs=$3 rule=$4
    awk -v what="$what" -v ours="$ours" -v theirs="$theirs" -v rule="$rule" \
        'BEGIN { printf "| %s | %.1f | %.1f | %.2f | %s |\n", what, ours, theirs, ours / theirs, rule }'
}
{
    printf '| what | longarm | perftest | ratio | bar |\n| --- | --: | --: | --: | --- |\n'
    row "put of 8 B, one way, µs (\`ib_write_lat\`)" "$(figure '.op == "put_one_way"' .lat_us min)" \
        "$(figure '.op == "write_lat"' .lat_us min)" "at most 1.3"
    row "get of 8 B, µs (\`ib_read_lat\`)" \
        "$(figure '.peer == "longarm" and .op == "get" and .bytes == 8' .lat_us min)" \
        "$(figure '.op == "read_lat"' .lat_us min)" "at most 1.3"
    for entry in put:write get:read; do
        for bytes in 65536 1048576; do
            op=${entry%:*} name=${entry#*:}
            row "$op of $((bytes >> 10)) KiB, zero copy, MB/s (\`ib_${name}_bw\`)" \
                "$(figure ".peer == \"zero copy\" and .op == \"$op\" and .bytes == $bytes" .mbps max)" \
                "$(figure ".op == \"${name}_bw\" and .bytes == $bytes" '.mib_s * 1.048576' max)" "at least 0.8"
        done
    done
} >"$out/figures.md"
cat "$out/figures.md"
# The three ways by size.
jq -c 'select(.peer == "zero copy" or (.peer | startswith("copied")))' "$out/lines.json" >"$out/curves.json"
"$target/release/longarm" perf draw "$out/curves.json" --plot "$out"
