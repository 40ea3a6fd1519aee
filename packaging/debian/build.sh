#!/usr/bin/env bash
# Makes a Debian package of what `make install` installs:
#
#   build.sh FOLDER      FOLDER/longarm_VERSION-1_ARCHITECTURE.deb
#
# Everything lies in a folder of its own, /usr/lib/longarm, because other packages have files of the same names: oshcc, shmem.h,
# libarmci. What may be found elsewhere without a clash is linked: the commands, pkg-config's files under names of longarm's, manual
# pages and completions. Variables that `make install` knows, VERBS=yes above all, are taken from make.
#
# Tried on Debian 12, by packaging/debian/try.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/apt.sh

if [ $# -ne 1 ]; then
    echo "usage: $0 FOLDER" >&2
    exit 2
fi
command -v dpkg-shlibdeps >/dev/null || apt_install dpkg-dev

folder=$(realpath -m "$1")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
maintainer="The longarm developers <longarm@invalid>"
package=$folder/longarm
prefix=/usr/lib/longarm
root=$package$prefix
documents=$package/usr/share/doc/longarm

rm -rf "$package"
mkdir -p "$package/DEBIAN" "$documents"
make --no-print-directory install PREFIX="$prefix" DESTDIR="$package"

for program in longarm longarm-bench longarm-footprint longarm-scale; do
    strip --remove-section=.comment "$root/bin/$program"
done
# Symbols for debuggers would be a package of their own.
rm "$root"/lib/*.debug
for library in "$root"/lib/*.so.*; do
    [ ! -L "$library" ] || continue
    strip --strip-unneeded --remove-section=.comment --remove-section=.gnu_debuglink "$library"
    # Debian's policy: what is not run by itself is not executable.
    chmod 644 "$library"
done

# link TARGET NAME: where the system looks, by a path from there.
link() {
    mkdir -p "$(dirname "$package$2")"
    ln -s "$(realpath -m --relative-to="$(dirname "$package$2")" "$package$1")" "$package$2"
}
for program in longarm longarm-bench longarm-footprint longarm-scale; do
    link "$prefix/bin/$program" "/usr/bin/$program"
done
# As Debian calls the commands of one of several implementations.
for program in oshcc oshc++ oshrun; do
    link "$prefix/bin/$program" "/usr/bin/$program.longarm"
done
link "$prefix/lib/pkgconfig/longarm.pc" "/usr/lib/$triplet/pkgconfig/longarm.pc"
link "$prefix/lib/pkgconfig/armci.pc" "/usr/lib/$triplet/pkgconfig/longarm-armci.pc"
link "$prefix/lib/pkgconfig/openshmem.pc" "/usr/lib/$triplet/pkgconfig/longarm-shmem.pc"

mkdir -p "$package/usr/share"
mv "$root/share/man" "$root/share/bash-completion" "$root/share/fish" "$package/usr/share"
mkdir -p "$package/usr/share/zsh"
mv "$root/share/zsh/site-functions" "$package/usr/share/zsh/vendor-completions"
rmdir "$root/share/zsh"
# What `longarm perf` runs has its page, and one page tells of both compilers.
manual=$package/usr/share/man/man1
for name in oshcc oshrun; do
    install -m 644 "packaging/debian/man/$name.1" "$manual/$name.longarm.1"
done
gzip -9n "$manual"/*.1
ln -s oshcc.longarm.1.gz "$manual/oshc++.longarm.1.gz"
for name in longarm-bench longarm-footprint longarm-scale; do
    ln -s longarm-perf.1.gz "$manual/$name.1.gz"
done
install -D -m 644 packaging/debian/lintian-overrides "$package/usr/share/lintian/overrides/longarm"

# What the programs and libraries hold besides longarm: each crate with its licence, and its notices.
crates=$folder/crates
cargo tree --locked --edges normal --prefix none --format '{p}|{l}' -p longarm-launch -p longarm-benches -p longarm-sim \
    -p longarm-armci -p longarm-shmem -p longarm-both | sed -n 's/ (proc-macro)//; /(\//d; s/^\([^ ]*\) v\([^| ]*\).*|\(.*\)/\1 \2 \3/p' |
    sort -u >"$crates"
notices() {
    local name crate_version licence manifest
    cargo metadata --locked --format-version 1 --filter-platform "$(rustc -vV | sed -n "s/^host: //p")" | grep -o '"manifest_path":"[^"]*"' | cut -d'"' -f4 | sort -u >"$folder/manifests"
    while read -r name crate_version licence; do
        printf '=== %s %s: %s\n\n' "$name" "$crate_version" "$licence"
        manifest=$(grep "/$name-${crate_version%%+*}[^/]*/Cargo.toml$" "$folder/manifests" | head -n 1)
        [ -n "$manifest" ] || continue
        find "$(dirname "$manifest")" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) \
            -exec cat {} +
    done <"$crates"
}
notices | gzip -9n >"$documents/crates.gz"
{
    cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: longarm
Source: https://github.com/longarm-rma/longarm
Comment: The programs and libraries hold crates of other authors, too. crates.gz beside this file has each with its licence
 and its notices.

Files: *
Copyright: 2026 The longarm developers
License: Expat or Apache-2.0

License: Expat
END
    sed -n '5,$p' LICENSE-MIT | sed 's/^$/./; s/^/ /'
    cat <<END

License: Apache-2.0
 On Debian systems the whole text is in /usr/share/common-licenses/Apache-2.0.
END
} >"$documents/copyright"
printf 'longarm (%s-1) unstable; urgency=low\n\n  * As of this version: see docs/src/status.md in its source.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(date --rfc-email --date="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}")" |
    gzip -9n >"$documents/changelog.Debian.gz"

# Which packages the programs and libraries need, by the symbols that they use.
mkdir -p "$folder/debian"
printf 'Source: longarm\n\nPackage: longarm\nArchitecture: any\n' >"$folder/debian/control"
needs=$(cd "$folder" && find "longarm$prefix/lib" -name '*.so.*' -type f -print0 |
    xargs -0 dpkg-shlibdeps -O "longarm$prefix"/bin/longarm* | sed -n 's/^shlibs:Depends=//p')
cat >"$package/DEBIAN/control" <<END
Package: longarm
Version: $version-1
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du --summarize --block-size=1024 --apparent-size "$package/usr" | cut -f1)
Depends: $needs
Recommends: gcc | c-compiler, pkgconf | pkg-config
Suggests: openssh-client
Section: science
Priority: optional
Homepage: https://github.com/longarm-rma/longarm
Description: one-sided communication between processes
 A process reads, writes and updates the memory of another process while that
 process computes. Nobody has to receive, poll or answer.
 .
 This package has the longarm command, which starts jobs and shows what they
 do, and the interfaces in C: ARMCI (for Global Arrays), OpenSHMEM 1.6, and a
 library with both. Programs in Rust use the crate longarm.
END
(cd "$package" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod -R u=rwX,go=rX "$package"
dpkg-deb --root-owner-group --build "$package" "$folder/longarm_$version-1_$architecture.deb"
