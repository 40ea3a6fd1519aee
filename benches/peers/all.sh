#!/usr/bin/env bash
# What `make bench-peers` runs: installs and builds the peers and longarm, measures all of them in one go, and writes the
# tables into docs/src/peers.md, what was aimed for and what is behind among them, and two pictures beside them.
#
#   all.sh [OPTION OF run]...        for a look: all.sh --quick --only longarm,limit
#
# The lines stay in peers/lines.jsonl of cargo's target folder. A page is only rewritten by a run without options.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/ga/folders.sh

out=$target/peers
benches/peers/install
cargo build --locked --release -p longarm-launch -p longarm-benches --bins
make install PREFIX="$out/prefix"
benches/peers/build "$out" "$out/prefix" "$cache"
export PEERS_OUT=$out PEERS_LONGARM=$target/release
# A spinning pair needs both of two processors, so nothing else gets any meanwhile, where that can be had.
first=()
if chrt -r 10 true 2>/dev/null; then first=(--rt); fi
if [ $# -eq 0 ]; then
    # In rounds, because a slow spell of the machine lasts longer than a peer's turn.
    benches/peers/run "${first[@]}" --quick --rounds 3 >"$out/lines.jsonl"
    benches/peers/table --stat rounds --mine longarm,armci-longarm,shmem-longarm --into docs/src/peers.md "$out/lines.jsonl"
    benches/peers/aims --into docs/src/peers.md "$out/lines.jsonl"
    "$target/release/longarm-bench" draw "$out/lines.jsonl" --plot "$out/pictures"
    for picture in latency-get-tcp bandwidth-nbput-tcp; do
        cp "$out/pictures/$picture.svg" docs/src/
    done
    printf 'bench-peers: the tables are in docs/src/peers.md, curves of every operation in %s\n' "$out/pictures"
else
    benches/peers/run "${first[@]}" "$@" >"$out/lines.jsonl"
    benches/peers/table --mine longarm,armci-longarm,shmem-longarm "$out/lines.jsonl"
fi
