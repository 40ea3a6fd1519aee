# Where things lie, for the scripts that source this from the project's top folder.

target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
# What is fetched, which is kept.
cache=${LONGARM_TEST_LAUNCH_CACHE:-$target/launch}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
# What is known of the hosts that are up. Hosts of several rigs know nothing of each other and may have the same names.
rig=${CLUSTER_RIG:-$cache/rig}
mkdir -p "$(dirname "$rig")"
rig=$(cd "$(dirname "$rig")" && pwd)/$(basename "$rig")
# What the network namespaces of these hosts are called: that of host n3, say, longarm-rig-n3.
spaces=longarm-$(basename "$rig")
