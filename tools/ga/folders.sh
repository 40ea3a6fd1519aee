# Where things are built, for the scripts that source this from the project's top folder.

target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
cache=${LONGARM_TEST_GA_CACHE:-$target/ga}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
# Where longarm itself is installed.
prefix=$cache/prefix
