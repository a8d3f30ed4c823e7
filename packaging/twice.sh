#!/bin/sh
# Builds the packages of the last commit twice: in two clones at two places, under another
# umask, time zone, home and language. All that comes out must be the same, byte for byte;
# the program in the image too. With an argument, the first clone is left there.
#
# PACKAGES_ONLY=linux_amd64 builds those of that system alone.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
image=repolock-twice-$$

end() {
	code=$?
	[ "$code" = 0 ] || cat "$work/log" >&2
	images=$(docker image ls -q "$image" 2>/dev/null || true)
	# shellcheck disable=SC2086
	[ -z "$images" ] || docker image rm -f $images >/dev/null 2>&1 || true
	rm -rf "$work"
	exit "$code"
}
trap end EXIT
trap 'exit 1' INT TERM HUP

# The files can be another user's, or have no history: then they get one.
export GIT_CONFIG_GLOBAL="$work/gitconfig"
git config --global --add safe.directory '*'
if ! git -C "$root" rev-parse -q --verify HEAD >/dev/null 2>&1; then
	cp -R "$root" "$work/root"
	root=$work/root
	git -C "$root" init -q
	git -C "$root" add .
	git -C "$root" -c user.name=nobody -c user.email=nobody@localhost commit -qm 'all of it'
fi

# GOCACHE and GOPATH would move with HOME, and all be built and fetched anew.
GOCACHE=$(go env GOCACHE) GOPATH=$(go env GOPATH)
export GOCACHE GOPATH

# once CLONE: build there.
once() {
	git clone -q "$root" "$1"
	IMAGE=$image sh "$1/packaging/packages.sh"
	sums "$1" >"$1.sums"
}

# sums CLONE: of all that a user can fetch, and of what the image runs.
sums() (
	cd "$1/dist"
	sha256sum checksums.txt ./*.tar.gz ./*.deb ./*.rpm ./*.cdx.json
	[ -n "${PACKAGES_ONLY:-}" ] || sha256sum ./*.zip
	if docker version >/dev/null; then
		box=$(docker create "$image")
		trap 'docker rm "$box" >/dev/null' EXIT
		docker cp "$box:/usr/local/bin/repolock" - | tar -xO | sha256sum | sed 's/-$/the image/'
		docker cp "$box:/etc/ssl/certs/ca-certificates.crt" - | tar -xO | sha256sum | sed "s/-\$/the image's certificates/"
	fi
)

once "$work/one" >"$work/log" 2>&1
mkdir -p "$work/another place" "$work/home"
(
	umask 077
	export TZ=Pacific/Chatham LC_ALL=C HOME="$work/home"
	once "$work/another place/two"
) >"$work/log" 2>&1

cat "$work/one.sums"
diff "$work/one.sums" "$work/another place/two.sums" >"$work/log" || {
	echo "twice: the second build differs" >>"$work/log"
	exit 1
}
if [ $# -gt 0 ]; then
	mkdir -p "$1"
	cp -R "$work/one/." "$1"
fi
