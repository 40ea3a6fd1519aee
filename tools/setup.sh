#!/usr/bin/env bash
# Installs what building longarm needs and this machine does not have. Does nothing, and says nothing, when all is there.
#
# Needed: a Rust toolchain with rustfmt and clippy; a C compiler with its headers, which links every program and
# assembles the hash function. With the argument `verbs` also what the verbs netmod is built with, and so the workspace as
# a whole: the headers of rdma-core, and libclang, which reads them. With the argument `tests` all that and a C++ compiler,
# for the tests of the C headers and for the fuzzer.
set -euo pipefail

. "$(dirname "$0")/apt.sh"

# Whether a C program can be compiled and linked: the compiler alone does not do without the headers.
can_link() {
    command -v cc >/dev/null || return 1
    local folder status=0
    folder=$(mktemp -d)
    printf '#include <stdio.h>\nint main(void) { return 0; }\n' >"$folder/probe.c"
    cc "$folder/probe.c" -o "$folder/probe" >/dev/null 2>&1 || status=1
    rm -rf "$folder"
    return "$status"
}

if ! command -v cargo >/dev/null; then
    say "there is no cargo: please install Rust first, see https://rustup.rs" >&2
    exit 1
fi

# Whether the headers of RDMA are there, and a libclang with its own, where Debian or another system puts them.
has_verbs() {
    command -v pkg-config >/dev/null && pkg-config --exists libibverbs librdmacm || return 1
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    compgen -G '/usr/lib*/llvm*/lib*/libclang[.-][s0-9]*' >/dev/null || compgen -G '/usr/lib*/libclang.so*' >/dev/null ||
        return 1
    compgen -G '/usr/lib*/llvm*/lib*/clang/*/include/stddef.h' >/dev/null ||
        compgen -G '/usr/lib*/clang/*/include/stddef.h' >/dev/null
}

can_link || apt_install gcc libc6-dev
case ${1:-} in
verbs | tests) has_verbs || apt_install libibverbs-dev librdmacm-dev libclang-dev pkg-config ;;
esac
if [ "${1:-}" = tests ]; then
    command -v c++ >/dev/null || apt_install g++
    # Counts the instructions of the hot calls; that step is left out where it cannot be had.
    command -v valgrind >/dev/null || (apt_install valgrind) || say "valgrind cannot be installed"
fi

for component in fmt clippy; do
    cargo "$component" --version >/dev/null 2>&1 && continue
    name=${component/fmt/rustfmt}
    if command -v rustup >/dev/null; then
        say "adding to the Rust toolchain: $name"
        rustup component add "$name"
    else
        say "the Rust toolchain has no $name, and there is no rustup to add it: its check is left out"
    fi
done
