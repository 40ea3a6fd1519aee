#!/bin/sh
# Runs the three example programs on one node and on two, and shows what they did.
#
# usage: tools/demo.sh LONGARM_BINARY EXAMPLES_DIR OUTPUT_DIR
#
# Every program checks its own answer; the first one that fails ends the demo. What was printed, the traffic heat
# maps and the pictures are kept in OUTPUT_DIR.
set -eu

if [ $# -ne 3 ]; then
    echo "usage: $0 LONGARM_BINARY EXAMPLES_DIR OUTPUT_DIR" >&2
    exit 2
fi
longarm=$1
examples=$2
output=$3
data=$(dirname "$0")/../runtime/examples/data
# Far more than any of the programs needs, even on a busy machine.
timeout_s=120

mkdir -p "$output"
written=

heading() {
    echo
    echo "=== $1"
}

keep() {
    written="${written:+$written
}$output/$1"
}

# run NAME NODES PROGRAM ARGS...: one program on 4 ranks. Its output goes to the screen and to a file.
run() {
    name=$1
    nodes=$2
    shift 2
    run_name=$name-${nodes}x$((4 / nodes))
    heading "$name: 4 ranks on $nodes node$([ "$nodes" -eq 1 ] || echo s)"
    status=0
    "$longarm" run -n 4 --nodes "$nodes" --timeout "$timeout_s" --stats --stats-file "$output/$run_name" -- "$@" \
        >"$output/$run_name.txt" 2>&1 || status=$?
    cat "$output/$run_name.txt"
    if [ "$status" -ne 0 ]; then
        echo "demo: $run_name failed with exit status $status" >&2
        exit 1
    fi
    keep "$run_name.txt"
    keep "$run_name-traffic.svg"
}

hash_of() {
    sed -n 's/^hash of the field: //p' "$output/heat-$1.txt"
}

for nodes in 1 2; do
    run pagerank "$nodes" "$examples/pagerank"
done
for nodes in 1 2; do
    run matmul "$nodes" "$examples/matmul" --a "$data/flights.mtx" --b "$data/flights.mtx"
done
for nodes in 1 2; do
    run heat "$nodes" "$examples/heat" --out "$output"
    keep "heat-${nodes}x$((4 / nodes)).png"
done

heading "the same field in both layouts"
one=$(hash_of 1x4)
two=$(hash_of 2x2)
if [ -z "$one" ] || [ "$one" != "$two" ]; then
    echo "demo: the hash of the field is '$one' on one node, but '$two' on two" >&2
    exit 1
fi
echo "hash on 1 node and on 2 nodes: $one"

heading "files written"
while IFS= read -r file; do
    if [ ! -s "$file" ]; then
        echo "demo: $file is missing" >&2
        exit 1
    fi
    echo "$file"
done <<LIST
$written
LIST
echo
echo "All six runs gave the serial answers."
