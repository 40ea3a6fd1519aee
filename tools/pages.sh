#!/usr/bin/env bash
# Runs every command that a page shows, or what docs/commands.list says instead, in a copy of this tree with a HOME of its own:
#
#   pages.sh [PAGE...]      README.md docs/src/testing.md; all of them if none is named
#
# The commands of a page run in one shell, in their order, so that one finds what those before it have made. What is built is
# shared with this tree. The exit status is 0 only if all of them succeed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/longarm
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mkdir -p "$tree" "$scratch/home" "$target"
git ls-files -z --cached --others --exclude-standard | xargs -0 -I{} sh -c 'test -e "$1" && printf "%s\0" "$1"' sh {} |
    tar --create --null --files-from - | tar --extract --directory "$tree"
# Pages name programs by where they are built.
ln -s "$target" "$tree/target"
unset CARGO_TARGET_DIR

# Whose home it is now finds the compiler all the same.
export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
export HOME=$scratch/home
export PATH=$HOME/.local/bin:$PATH:$CARGO_HOME/bin

commands=$scratch/commands
cargo run --locked --quiet -p longarm-check -- . --commands >"$commands" || exit 1
if [ $# -gt 0 ]; then
    pages=("$@")
else
    mapfile -t pages < <(cut -d: -f1 "$commands" | uniq)
fi
echo "pages: installing into $HOME/.local"
if ! make --no-print-directory -C "$tree" install PREFIX="$HOME/.local" >"$scratch/install" 2>&1; then
    cat "$scratch/install"
    exit 1
fi

# Runs a command while two hosts that are made up on this machine are there.
between_hosts() {
    local status=0
    if [ "$(id -u)" -ne 0 ]; then
        echo "left out: only root can make hosts up"
        return 0
    fi
    "$tree/tools/ga/hosts.sh" up || { echo "left out: no hosts can be made up here"; return 0; }
    "$@" || status=$?
    "$tree/tools/ga/hosts.sh" down
    return "$status"
}

# All commands of one page, in a shell of its own; how many have failed is its status.
run_page() {
    local page=$1 bad=0 place shown command
    cd "$tree" || return 1
    while IFS=$'\t' read -r place shown command <&3; do
        case $command in
        '# '*)
            printf -- '-       %s: %s (%s)\n' "$place" "$shown" "${command#\# }"
            continue
            ;;
        esac
        if eval "$command" >"$scratch/output" 2>&1 </dev/null; then
            printf 'passed  %s: %s\n' "$place" "$command"
        else
            printf 'FAILED  %s: %s\n' "$place" "$command"
            tail -n 40 "$scratch/output" | sed 's/^/    /'
            bad=$((bad + 1))
        fi
    done 3< <(grep "^$page:" "$commands")
    return $((bad > 100 ? 100 : bad))
}

failed=0
for page in "${pages[@]}"; do
    (run_page "$page")
    failed=$((failed + $?))
done
if [ "$failed" -ne 0 ]; then
    echo "FAILED: $failed commands"
    exit 1
fi
echo "every command that these pages show has run"
