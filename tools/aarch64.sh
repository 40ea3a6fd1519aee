#!/usr/bin/env bash
# Builds the tests of memory, shm and proto for aarch64, and runs them by an emulator: what stands in the place of the
# machine code for x86_64. The emulator shows wrong code, not a wrong order: its processor keeps that of this machine.
#
# Installs a compiler and the emulator by apt-get. Rust's library for aarch64 comes from rustup; where rustup cannot have
# it, it comes with a compiler of the same version from Debian, unpacked under the target folder and not installed. Says
# why when that cannot be had either, and ends with status 77.
set -euo pipefail
cd "$(dirname "$0")/.."

. tools/apt.sh

triple=aarch64-unknown-linux-gnu
target=$(realpath -m "${CARGO_TARGET_DIR:-target}/aarch64")
# A command, and the packages that bring it.
have() { command -v "$1" >/dev/null || (apt_install "${@:2}"); }
if ! have aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross || ! have qemu-aarch64-static qemu-user-static; then
    say "the compiler or the emulator cannot be had: nothing is tested" >&2
    exit 77
fi

# Debian's compiler, and its library for both machines, as a command that runs it there.
debian_rust() {
    local folder=$target/debian
    [ ! -x "$folder/rustc" ] || return 0
    mkdir -p "$folder"/{state/lists/partial,cache/archives/partial,packages,unpacked}
    cp /var/lib/dpkg/status "$folder/state/status"
    printf '%s\n' "Dir::State \"$folder/state\";" "Dir::State::status \"$folder/state/status\";" \
        "Dir::Cache \"$folder/cache\";" 'APT::Architectures { "amd64"; "arm64"; };' >"$folder/apt.conf"
    (
        export APT_CONFIG=$folder/apt.conf
        apt-get update -qq
        packages=(rustc-web libstd-rust-web-dev libstd-rust-web-dev:arm64)
        # The compiler's own libraries have their versions in their names.
        for pattern in '^libstd-rust-web-[0-9]' '^libllvm[0-9]'; do
            packages+=("$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
                --no-replaces --no-enhances rustc-web | grep -E "$pattern" | head -1)")
        done
        cd "$folder/packages"
        apt-get download -qq "${packages[@]}"
        for package in *.deb; do dpkg-deb -x "$package" ../unpacked; done
    ) || return 1
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "'$folder/unpacked/usr/lib/x86_64-linux-gnu'" \
        "'$folder/unpacked/usr/bin/rustc'" >"$folder/rustc"
    chmod +x "$folder/rustc"
}

if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$triple" ] &&
    ! timeout 300 rustup target add "$triple" >/dev/null 2>&1; then
    say "rustup has no library for $triple: Debian's compiler is used"
    if ! debian_rust; then
        say "there is no Rust library for $triple: nothing is tested" >&2
        exit 77
    fi
    export RUSTC=$target/debian/rustc
fi
export CARGO_TARGET_DIR=$target
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
# Fewer cases of each property: it is some ten times slower.
export PROPTEST_CASES=${PROPTEST_CASES:-32}

# The emulator does not know the system calls that these are about: copies between processes, what TCP has measured, and advice about
# mappings: it says that pages were given back, and keeps them.
unknown=(attach:: the_round_trip_of_a_tcp_connection a_mapping_can_be_left_out_of_core_dumps
    a_segment_that_is_given_back_takes_no_memory one_window_after_the_other_has_memory_with_room_and_finds_zeros)
printf 'left out, as the emulator has not what they need: %s\n' "${unknown[*]}"
cargo test --locked --no-fail-fast --target "$triple" --lib -p longarm-memory -p longarm-shm -- "${unknown[@]/#/--skip=}"
cargo test --locked --no-fail-fast --target "$triple" --lib --tests -p longarm-proto
