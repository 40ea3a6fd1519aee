#!/usr/bin/env bash
# Makes one host of tools/clusters/hosts.sh of the namespaces that it is started in, and keeps them: host.sh RIG NAME KEEP...
#
# /tmp, /run and /dev/shm are its own and empty; programs of the rig's cache lie over /usr, and files of the rig over /etc.
# KEEP are folders that stay what they are even if they lie below one of those.
set -euo pipefail

rig=$1
name=$2
shift 2
hostname "$name"

# Folders below what is hidden in the next step are held in the meantime.
mount -t tmpfs -o mode=755 tmpfs /mnt
held=()
for folder in /run/netns "$@"; do
    case $folder/ in
    /tmp/* | /run/* | /dev/shm/*)
        mkdir -p "/mnt/${#held[@]}"
        mount --rbind "$folder" "/mnt/${#held[@]}"
        held+=("$folder")
        ;;
    esac
done
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
for index in "${!held[@]}"; do
    mkdir -p "${held[index]}"
    mount --move "/mnt/$index" "${held[index]}"
done
umount /mnt

layers=()
for folder in "$(dirname "$rig")"/{ssh,slurm,openmpi4,hydra4}; do
    [ ! -d "$folder/usr" ] || layers+=("$folder/usr")
done
[ ${#layers[@]} -eq 0 ] || mount -t overlay -o "lowerdir=$(IFS=: && echo "${layers[*]}"):/usr" overlay /usr
mount -t overlay -o "lowerdir=$rig/etc:/etc" overlay /etc

mkdir -p /run/lock /run/sshd
# Its loops wait, so that nobody has to be started again and again.
echo $$ >"$rig/$name.pid.new"
mv "$rig/$name.pid.new" "$rig/$name.pid"
exec sleep infinity
