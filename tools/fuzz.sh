#!/usr/bin/env bash
# Builds the fuzzer's programs and runs each target, one after the other, on one processor.
#
#   tools/fuzz.sh [SECONDS [TARGET...]]    SECONDS for each target (60), all targets
#
# The end is a table of what was executed. The exit status is 0 only if nothing was found; of a finding, the input and
# the command that shows it again are printed.
#
#   LONGARM_FUZZ_SANITIZER=address   with the address sanitizer, which needs a nightly toolchain
#   LONGARM_FUZZ_KEEP=yes            puts what is new and worth keeping into the committed corpus, minimised
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
sanitizer=${LONGARM_FUZZ_SANITIZER:-none}
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target_dir/fuzz
runner=tools/fuzz/runner
# Bytes of the longest input, and how long one may take before it counts as a finding.
input_bytes_max=4096
input_seconds_max=10
memory_mib_max=1024
# A connection's buffers go back to the heap, not to the system: page faults would take most of the time.
export MALLOC_TRIM_THRESHOLD_=268435456 MALLOC_MMAP_THRESHOLD_=67108864 MALLOC_TOP_PAD_=16777216
# What one target may keep in the committed corpus.
kept_files_max=40
kept_bytes_max=20480

if [ "$#" -gt 0 ]; then
    targets=("$@")
else
    mapfile -t targets < <(sed -n 's|^path = "targets/\(.*\)\.rs"$|\1|p' "$runner/Cargo.toml")
fi

# What cargo-fuzz does too: coverage counters and compared values in all of the code, and what a release leaves out.
coverage=(
    --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks
)
toolchain=()
if [ "$sanitizer" != none ]; then
    toolchain=(+nightly)
    coverage+=("-Zsanitizer=$sanitizer")
fi
# libFuzzer is written in C++.
tools/setup.sh tests
host=$(rustc -vV | sed -n 's/^host: //p')
programs=$work/$sanitizer/$host/release

echo "building ${#targets[@]} targets, sanitizer: $sanitizer"
# The same versions as those of the workspace; what the runner needs besides is added.
cp Cargo.lock "$runner/Cargo.lock"
RUSTFLAGS="${coverage[*]}" CARGO_TARGET_DIR="$work/$sanitizer" \
    cargo "${toolchain[@]}" build --manifest-path "$runner/Cargo.toml" --release --target "$host" \
    "${targets[@]/#/--bin=}"

# The number behind a word in the last lines of a log; 0 if it is not there.
stat_of() {
    local number
    number=$(sed -n "s/^stat::$1: *\([0-9]*\)$/\1/p" "$2" | tail -n 1)
    echo "${number:-0}"
}

# Of the inputs that together reach as much as all of them, an even selection by size into the committed corpus, beside
# the seeds, which have names.
keep() {
    local target=$1 merged=$work/merged/$1 kept=tools/fuzz/corpus/$1 files bytes=0 place=0 every size input
    rm -rf "$merged"
    mkdir -p "$merged" "$kept"
    "$programs/$target" -merge=1 -set_cover_merge=1 -max_len=1024 -rss_limit_mb="$memory_mib_max" \
        "$merged" "$kept" "$work/corpus/$target" >"$work/$target.merge.log" 2>&1
    find "$kept" -type f -regextype posix-extended -regex '.*/[0-9a-f]{40}' -delete
    files=$(find "$merged" -type f | wc -l)
    every=$(((files + kept_files_max - 1) / kept_files_max))
    while read -r size input; do
        place=$((place + 1))
        if [ $((place % every)) -eq 0 ] && [ $((bytes + size)) -le "$kept_bytes_max" ]; then
            cp "$input" "$kept/$(sha1sum <"$input" | cut -c 1-40)"
            bytes=$((bytes + size))
        fi
    done < <(find "$merged" -type f -printf '%s %p\n' | sort -n)
}

rows=()
findings=0
total=0
for target in "${targets[@]}"; do
    corpus=$work/corpus/$target
    artifacts=$work/artifacts/$target
    log=$work/$target.log
    mkdir -p "$corpus" "$artifacts"
    folders=("$corpus" "tools/fuzz/corpus/$target")
    if [ -d "tools/fuzz/regressions/$target" ]; then
        folders+=("tools/fuzz/regressions/$target")
    fi
    printf '%s: %s s\n' "$target" "$seconds"
    touch "$work/began"
    began=$SECONDS
    status=0
    "$programs/$target" -max_total_time="$seconds" -max_len="$input_bytes_max" -timeout="$input_seconds_max" \
        -rss_limit_mb="$memory_mib_max" -print_final_stats=1 -artifact_prefix="$artifacts/" "${folders[@]}" \
        >"$log" 2>&1 || status=$?
    took=$((SECONDS - began))
    executed=$(stat_of number_of_executed_units "$log")
    reached=$(sed -n 's/^#[0-9]*.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    found=0
    if [ "$status" -ne 0 ]; then
        found=1
    fi
    total=$((total + executed))
    rows+=("$(printf '%-16s %14d %8d %10d %9s %9d' \
        "$target" "$executed" "$took" $((executed / (took > 0 ? took : 1))) "${reached:--}" "$found")")
    if [ "$found" -gt 0 ]; then
        findings=$((findings + found))
        grep -E 'panicked at|ERROR: libFuzzer|ERROR: AddressSanitizer' -A 2 "$log" | head -n 8 || true
        find "$artifacts" -type f -newer "$work/began" | while read -r input; do
            printf 'found: %s\nagain: %s %s\n' "$input" "$programs/$target" "$input"
        done
    elif [ "${LONGARM_FUZZ_KEEP:-no}" = yes ]; then
        keep "$target"
    fi
done

printf '\n%-16s %14s %8s %10s %9s %9s\n' target executions seconds per_second coverage findings
printf '%s\n' "${rows[@]}"
printf '%-16s %14d\n' total "$total"
if [ "$findings" -ne 0 ]; then
    echo "FAILED: $findings findings"
    exit 1
fi
echo "nothing was found"
