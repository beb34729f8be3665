#!/usr/bin/env bash
# tools/build_image.sh NAME PACKAGES: an image without a registry, as a file that `podman load` and `docker load` read.
#
# NAME is a folder that tools/image_files.py made below .image, PACKAGES are Debian's, with commas between them. Base:
# mmdebstrap, kept in .image for the next time. Build: buildah, in a storage of its own that is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/../.image"
name=$1 packages=$2
for program in mmdebstrap buildah; do
  command -v "$program" >/dev/null || { echo "$program is not installed (Debian: apt-get install mmdebstrap buildah)" >&2; exit 1; }
done

# Debian without recommended packages, apt, manuals, translations and tables of other character sets. After the
# packages were configured, Perl goes too: only dpkg's scripts use it, and no package is ever added. usr-is-merged:
# without it the package that moves /bin needs all of Perl's modules.
base=base-$name.tar
if [ ! -s "$base" ]; then
  mmdebstrap --quiet --format=tar --variant=essential --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/lib/*/gconv/*' \
    --customize-hook='rm -rf "$1"/usr/lib/*/perl-base "$1"/usr/bin/perl* "$1"/usr/lib/python3*/pydoc_data "$1"/var/cache/debconf/*' \
    --include="usr-is-merged,$packages" bookworm "$base.part" >"$base.log" 2>&1 || { cat "$base.log" >&2; exit 1; }
  mv "$base.part" "$base"
fi

storage=$(mktemp -d)
build() { buildah --root "$storage/root" --runroot "$storage/run" "$@"; }
finish() {
  build rm --all >/dev/null 2>&1 || true
  build rmi --all --force >/dev/null 2>&1 || true
  umount "$storage"/root/* 2>/dev/null || true
  rm -rf "$storage"
}
trap finish EXIT
# chroot: no container runtime is needed. docker: the format that keeps HEALTHCHECK.
options=(--quiet --isolation chroot --format docker)
build bud "${options[@]}" --build-arg TAR="$base" -t localhost/base -f ../deploy/Containerfile.base . >/dev/null
build bud "${options[@]}" --build-arg BASE=localhost/base -t "localhost/acktrail-$name" -f ../deploy/Containerfile "$name" >/dev/null
rm -f "$name.tar"
build push --quiet "localhost/acktrail-$name" "docker-archive:$PWD/$name.tar:localhost/acktrail-$name:latest" >/dev/null
echo "$(($(stat -c %s "$base") / 1000000)) MB of Debian, $(($(stat -c %s "$name.tar") / 1000000)) MB in all: .image/$name.tar"
