#!/usr/bin/env bash
# Installs the Debian package in a folder with Debian 12, as root, compiles a C program of each kind with pkg-config there, runs
# them as jobs, and removes the package again:
#
#   try.sh PACKAGE FOLDER      FOLDER holds a Debian with gcc, libc6-dev and pkgconf; one is made by debootstrap where it is not there
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 PACKAGE FOLDER" >&2; exit 2; }
package=$1 folder=$2
[ -d "$folder" ] || debootstrap --variant=minbase --include=gcc,libc6-dev,pkgconf bookworm "$folder"
mount --bind /proc "$folder/proc"
mount --bind /dev "$folder/dev"
trap 'umount "$folder/proc" "$folder/dev"' EXIT

inside() { chroot "$folder" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp sh -e -c "$1"; }

cp "$package" "$folder/tmp/longarm.deb"
inside 'dpkg -i /tmp/longarm.deb'
cat >"$folder/tmp/armci.c" <<'END'
#include <armci.h>
#include <message.h>
#include <stdio.h>
int main(void) {
    armci_msg_init(0, 0);
    ARMCI_Init();
    int sum = armci_msg_me() + 1;
    armci_msg_igop(&sum, 1, "+");
    printf("armci %d\n", sum);
    ARMCI_Finalize();
    armci_msg_finalize();
    return sum != 6;
}
END
cat >"$folder/tmp/shmem.c" <<'END'
#include <shmem.h>
#include <stdio.h>
int main(void) {
    static long sum;
    shmem_init();
    for (int rank = 0; rank < shmem_n_pes(); rank++) shmem_long_atomic_add(&sum, shmem_my_pe() + 1, rank);
    shmem_barrier_all();
    printf("shmem %ld\n", sum);
    shmem_finalize();
    return sum != 6;
}
END
# A program with both interfaces needs the library with both.
sed -e 's/#include <shmem.h>/&\n#include <armci.h>/' -e 's/shmem_init();/&\n    ARMCI_Init();/' -e 's/"shmem /"both /' \
    -e 's/shmem_finalize/ARMCI_Finalize();\n    &/' "$folder/tmp/shmem.c" >"$folder/tmp/both.c"
run() {
    inside "cd /tmp && cc $1.c -o $1 \$(pkg-config --cflags --libs $2) && longarm run -n 3 ./$1 && longarm run -n 3 --nodes 2 ./$1"
}
run armci longarm-armci
run shmem longarm-shmem
run both longarm
inside 'cd /tmp && oshcc.longarm shmem.c -o shmem2 && oshrun.longarm -np 3 ./shmem2'
inside 'test -s /usr/share/man/man1/longarm-run.1.gz && sh -n /dev/null && longarm info >/dev/null'
inside 'dpkg --purge longarm && test ! -e /usr/lib/longarm && test ! -e /usr/bin/longarm'
echo "the package installs, compiles, runs and goes away"
