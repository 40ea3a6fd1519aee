# Steps that are run whatever the others say, one after the other or some beside others, for the scripts that test; they source this.

log=$(mktemp)
declare -A aside_group aside_folder          # of what `begin_aside` has begun, by its name
trap clean_up EXIT
summary=()
failed=0

clean_up() {
    local name
    rm -f "$log"
    for name in "${!aside_group[@]}"; do
        kill -- "-${aside_group[$name]}" 2>/dev/null
        wait "${aside_group[$name]}" 2>/dev/null
        printf '\n=== %s: stopped, because the script ended; the last lines that it printed:\n' "$name"
        tail -n 20 "${aside_folder[$name]}/output"
        rm -rf "${aside_folder[$name]}"
    done
}

# Runs one step: its name, then its command, which ends with status 77 when it says why it can do nothing on this machine.
step() {
    local name=$1 began=$SECONDS outcome=passed status=0
    shift
    printf '\n=== %s: %s\n' "$name" "$*"
    "$@" 2>&1 | tee -a "$log" || status=$?
    if [ "$status" -eq 77 ]; then
        outcome=-
    elif [ "$status" -ne 0 ]; then
        outcome=FAILED
        failed=1
    fi
    local line
    line=$(printf '%-7s %-18s %4d s' "$outcome" "$name" $((SECONDS - began)))
    [ "$outcome" != - ] || line+=", left out: see above"
    summary+=("$line")
}

# Runs a function that calls `step` and `skip`, beside the steps that follow. What it prints comes all at once, from `join_aside`.
begin_aside() {
    local name=$1 folder
    folder=$(mktemp -d)
    set -m                                   # a process group of its own, so that all of it can be ended
    (
        set +m
        trap - EXIT
        log=$folder/log summary=() failed=0
        : >"$log"
        "$name"
        printf '%s\n' "${summary[@]}" >"$folder/summary"
        exit "$failed"
    ) >"$folder/output" 2>&1 </dev/null &
    aside_group[$name]=$!
    aside_folder[$name]=$folder
    set +m
}

# Waits for it, and counts its steps as those of the caller.
join_aside() {
    local name=$1 lines
    local folder=${aside_folder[$name]}
    wait "${aside_group[$name]}" || failed=1
    cat "$folder/output"
    cat "$folder/log" >>"$log"
    # One that was killed has left none.
    [ -e "$folder/summary" ] || echo "FAILED  $name" >"$folder/summary"
    mapfile -t lines <"$folder/summary"
    summary+=("${lines[@]}")
    rm -rf "$folder"
    unset "aside_group[$name]" "aside_folder[$name]"
}

skip() {
    printf '\n=== %s: left out, %s\n' "$1" "$2"
    summary+=("$(printf '%-7s %-18s %s' "-" "$1" "left out, $2")")
}

# Lists the steps with their times and counts the tests. The status is 0 only if no step has failed.
finish() {
    printf '\n=== %s\n' "summary"
    printf '%s\n' "${summary[@]}"
    # Every test program ends with a line that counts its tests. A test that cannot run here says so in a line of its own, `SKIPPED:`
    # with its name and the reason, and is not counted as passed.
    awk '/^SKIPPED: / && !($2 in said) { said[$2] = 1; here++ }
         /^test result: / {
             passed -= here; skipped += here; here = 0; split("", said)
             for (i = 1; i <= NF; i++) {
                 if ($i == "passed;") passed += $(i - 1)
                 if ($i == "failed;") bad += $(i - 1)
                 if ($i == "ignored;") skipped += $(i - 1)
             }
         }
         END { printf "%d passed, %d failed, %d skipped\n", passed, bad, skipped }' "$log"
    printf 'in %d s\n' "$SECONDS"
    if [ "$failed" -ne 0 ]; then
        echo "FAILED"
        exit 1
    fi
    echo "passed"
}
