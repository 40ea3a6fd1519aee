#!/usr/bin/env bash
# Runs the steps of a container recipe without a container engine, as root: each stage is a folder with Debian 12, which debootstrap
# fills, and steps run in it by chroot. At the end `longarm run` starts two ranks in the last stage.
#
#   try.sh FOLDER [docker|apptainer]
#
# The images that the recipe begins with are not used: the one with Rust is Debian 12 with this machine's own toolchain. What this
# machine has built already is used for the crates of others. FOLDER/debian, when it is there, is taken as what debootstrap made.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { echo "usage: $0 FOLDER [docker|apptainer]" >&2; exit 2; }
folder=$(realpath -m "$1")
kind=${2:-docker}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mkdir -p "$folder"

[ -d "$folder/debian" ] || debootstrap --variant=minbase --include=ca-certificates bookworm "$folder/debian"

mounted=()
leave() {
    local at
    for at in "${mounted[@]}"; do umount "$at" || true; done
}
trap leave EXIT

# mount_at FROM TO: seen at both until the end.
mount_at() {
    mkdir -p "$2"
    mount --bind "$1" "$2"
    mounted=("$2" "${mounted[@]}")
}

# Begins a stage: a copy of Debian in $root, with the toolchain if the image is one of Rust.
begin_stage() {
    local image=$1
    name=$2
    root=$folder/$kind-$name
    echo "=== stage $name: $image"
    rm -rf --one-file-system "$root"
    cp -a "$folder/debian" "$root"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    mount_at /proc "$root/proc"
    mount_at /dev "$root/dev"
    environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive)
    place=/
    case $image in
    rust:*)
        mount_at "${CARGO_HOME:-$HOME/.cargo}" "$root/usr/local/cargo"
        mount_at "${RUSTUP_HOME:-$HOME/.rustup}" "$root/usr/local/rustup"
        mount_at "$target" "$root/build"
        environment+=(CARGO_HOME=/usr/local/cargo RUSTUP_HOME=/usr/local/rustup)
        environment[0]=PATH=/usr/local/cargo/bin:${environment[0]#PATH=}
        ;;
    esac
}

run_step() {
    echo "=== run: $1"
    chroot "$root" env -i "${environment[@]}" sh -e -c "cd '$place' && $1"
}

# copy_step FROM TO, of the tree or of a stage.
copy_step() {
    echo "=== copy: $1 $2"
    if [ "$1" = . ]; then
        mkdir -p "$root$2"
        git ls-files -z --cached --others --exclude-standard | xargs -0 -I{} sh -c 'test -e "$1" && printf "%s\0" "$1"' sh {} |
            tar --create --null --files-from - | tar --extract --directory "$root$2"
    else
        cp -a "$1" "$root$2"
    fi
}

docker_steps() {
    local word rest
    while read -r word rest; do
        case $word in
        FROM) begin_stage "${rest%% *}" "$(sed -n 's/.* AS //p' <<<"$rest" | grep . || echo final)" ;;
        RUN) run_step "$rest" ;;
        ENV) environment+=("$rest") ;;
        WORKDIR) place=$rest ;;
        COPY)
            case $rest in
            --from=*) copy_step "$folder/$kind-$(sed 's/--from=\([^ ]*\) .*/\1/; q' <<<"$rest")$(cut -d' ' -f2 <<<"$rest")" "${rest##* }" ;;
            *) copy_step "${rest% *}" "${rest##* }" ;;
            esac
            ;;
        '' | '#'* | CMD) ;;
        *) echo "try: what is $word in a Dockerfile?" >&2; exit 1 ;;
        esac
    done
}

apptainer_steps() {
    local line image='' section='' source='' script=''
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
        From:*) image=${line#From: } ;;
        Stage:*) begin_stage "$image" "${line#Stage: }" ;;
        %* | Bootstrap:*)
            [ "$section" != %post ] || run_step "$script"
            section=${line%% *} source=$(sed -n 's/^%files from //p' <<<"$line") script=true
            ;;
        '    '*)
            case $section in
            %files)
                read -r from to <<<"$line"
                copy_step "${source:+$folder/$kind-$source}$from" "$to"
                ;;
            %post) script="$script"$'\n'"${line#    }" ;;
            esac
            ;;
        esac
    done
}

case $kind in
docker) docker_steps <packaging/container/Dockerfile ;;
apptainer) apptainer_steps <packaging/container/longarm.def ;;
*) echo "try: $kind is neither docker nor apptainer" >&2; exit 2 ;;
esac
run_step "longarm run -n 2 --tag-output echo here"
run_step "longarm run -n 2 --nodes 2 --tag-output echo there"
echo "=== every step of $kind's recipe has run"
