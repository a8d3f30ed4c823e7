#!/bin/sh
# Builds the container image from what make packages has left in dist/, by the plain
# docker build: there is nothing to pull, and no plugin is needed. IMAGE is its name,
# repolock if unset; the tags are the version and latest. ARCH is amd64 or arm64, by
# default the machine of Docker.
set -eu
umask 022
cd "$(dirname "$0")/.."

image=${IMAGE:-repolock}
version=$(sed -n 's/.*"version":"\([^"]*\)".*/\1/p' dist/metadata.json)
commit=$(sed -n 's/.*"commit":"\([^"]*\)".*/\1/p' dist/metadata.json)
case ${ARCH:-$(docker version --format '{{.Server.Arch}}')} in
amd64) arch=amd64 ;;
arm64) arch=arm64 ;;
*)
	echo "image: there are no packages for Docker's machine" >&2
	exit 69
	;;
esac

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
trap 'exit 1' INT TERM HUP
root=$context/rootfs
mkdir -p "$root/usr/local/bin" "$root/etc/ssl/certs" "$root/usr/share/doc/repolock"
mkdir -m 1777 "$root/tmp" # repolock torture writes there, and your commands may
unpack() { tar -xzOf "dist/repolock_${version}_linux_$arch.tar.gz" "repolock_${version}_linux_$arch/$1"; }
unpack repolock >"$root/usr/local/bin/repolock"
chmod 755 "$root/usr/local/bin/repolock"
for file in LICENSE NOTICES; do unpack "$file" >"$root/usr/share/doc/repolock/$file"; done
cp dist-extra/ca-certificates.crt "$root/etc/ssl/certs/"
echo "repolock:x:65532:65532:repolock:/tmp:/" >"$root/etc/passwd" # or a lock's holder has no name

DOCKER_BUILDKIT=0 docker build -q --platform "linux/$arch" -t "$image:$version" -t "$image:latest" \
	--label "org.opencontainers.image.version=$version" --label "org.opencontainers.image.revision=$commit" \
	-f - "$context" <packaging/container/Dockerfile >/dev/null
echo "image: $image:$version"
