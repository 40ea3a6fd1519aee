#!/usr/bin/env bash
# What `make test-all` runs: `make test`, then all that is too long for every day. Some hours on two processors.
#
# Every step is run, whatever the others say, and the end lists them all. The exit status is 0 only if none failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tools/steps.sh

target=${CARGO_TARGET_DIR:-target}

step help make help
step setup make setup
step test make test
step test-ga make test-ga
step test-verbs make test-verbs
step test-launch make test-launch
step test-shmem4py make test-shmem4py
step sanitize make sanitize
step aarch64 tools/aarch64.sh
step soak make soak SECONDS=400
step fuzz make fuzz SECONDS=60
if command -v valgrind >/dev/null; then
    step counts make counts
else
    skip counts "valgrind is not installed"
fi
step docs make docs
# Each crate builds out of what is published of it. What the programs of pages are made with is not published.
step packages cargo package --workspace --exclude longarm-pages --locked --allow-dirty
step install make install PREFIX="$(realpath -m "$target/installed")" DESTDIR=
step deb make deb
step pages tools/pages.sh
# What the public interface has lost since the last version. The tool has rustdoc describe both versions.
if ! command -v cargo-semver-checks >/dev/null; then
    skip semver "cargo-semver-checks is not installed"
elif version=$(git describe --tags --abbrev=0 2>/dev/null); then
    step semver cargo semver-checks -p longarm --default-features --baseline-rev "$version"
else
    skip semver "no version is tagged yet"
fi
# Without doing it: it would take away what all the steps have built.
step clean make clean --dry-run
finish
