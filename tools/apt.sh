# Installing Debian packages, for the scripts that set something up; they source this.

say() { printf 'setup: %s\n' "$*"; }

# Runs a command as root. Without a terminal nobody can be asked for a password.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif ! command -v sudo >/dev/null; then
        say "not root, and there is no sudo: please run as root: $*" >&2
        exit 1
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

apt_install() {
    if ! command -v apt-get >/dev/null; then
        say "there is no apt-get here: please install what these packages of Debian hold: $*" >&2
        exit 1
    fi
    say "installing by apt-get: $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}
