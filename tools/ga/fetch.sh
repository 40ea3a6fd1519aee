#!/usr/bin/env bash
# Fetches the source of Global Arrays into a folder: fetch.sh FOLDER
#
# The source package `globalarrays` of the Python package index carries the whole tree (GA, ComEx, ARMCI and all their
# tests) under ga-master/. Does nothing where the tree is there already.
set -euo pipefail

VERSION=5.7.1b0
SHA256=eab9de32a71c8e9a681764d5dcc3faded0683947880928abc1536c7b0b14cfc9
ARCHIVE=globalarrays-$VERSION.tar.gz

say() { printf 'fetch: %s\n' "$*"; }
fail() {
    say "$*" >&2
    exit 1
}

[ $# -eq 1 ] || fail "usage: fetch.sh FOLDER"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
tree=$folder/ga-master
stamp=$folder/.fetched-$VERSION
if [ -f "$stamp" ] && [ -f "$tree/configure.ac" ]; then
    exit 0
fi

matches() { [ -f "$1" ] && printf '%s  %s\n' "$SHA256" "$1" | sha256sum --check --status; }

# pip asks a source package for its metadata, which runs the package's setup: a folder of its own keeps that out of the
# system's Python, and gives that setup what it needs where the package index does not.
download() {
    command -v python3 >/dev/null || fail "there is no python3, which downloads the source package"
    local scratch=$folder/pip
    rm -rf "$scratch"
    python3 -m venv "$scratch" 2>"$folder/venv.log" ||
        fail "python3 -m venv failed (Debian: apt-get install python3-venv); see $folder/venv.log"
    local pip=("$scratch/bin/python" -m pip --disable-pip-version-check --quiet)
    local options=(download --no-deps --no-binary ":all:" --dest "$folder" "globalarrays==$VERSION")
    say "downloading $ARCHIVE"
    if ! "${pip[@]}" "${options[@]}" >"$folder/pip.log" 2>&1 && ! matches "$folder/$ARCHIVE"; then
        # Some pips refuse to build setuptools from source for the setup: then it is put there beforehand.
        "${pip[@]}" install setuptools wheel >>"$folder/pip.log" 2>&1 || fail "pip failed; see $folder/pip.log"
        "${pip[@]}" "${options[@]}" --no-build-isolation >>"$folder/pip.log" 2>&1 ||
            fail "pip cannot download globalarrays $VERSION; see $folder/pip.log"
    fi
    rm -rf "$scratch"
}

matches "$folder/$ARCHIVE" || download
matches "$folder/$ARCHIVE" || fail "$folder/$ARCHIVE is not the file that is expected (its SHA-256 differs): remove it"

rm -rf "$tree"
tar -xzf "$folder/$ARCHIVE" -C "$folder" --strip-components=1 "globalarrays-$VERSION/ga-master"
touch "$stamp"
say "the source is in $tree"
