#!/bin/sh
# What goes into the packages and isn't in the repository, made anew below dist-extra/.
# goreleaser runs this before it builds. What it finds in dist-extra/share goes to
# /usr/share (deb, rpm) and into the archives' share/, with the modes that it has here.
set -eu
umask 022
cd "$(dirname "$0")/.."

rm -rf dist-extra
share=dist-extra/share
mkdir -p "$share"

# With the commit in it, whose date the man page has.
program=dist-extra/repolock
GOFLAGS='' go build -trimpath -buildvcs=true -o "$program" ./cmd/repolock

# put FILE COMMAND…: what the command prints becomes a file.
put() {
	mkdir -p "$(dirname "$1")"
	file=$1
	shift
	"$@" >"$file"
}

put "$share/man/man1/repolock.1" "$program" man
put "$share/bash-completion/completions/repolock" "$program" completion bash
put "$share/fish/vendor_completions.d/repolock.fish" "$program" completion fish
for dir in site-functions vendor-completions; do # the second is Debian's
	put "$share/zsh/$dir/_repolock" "$program" completion zsh
done

# goreleaser runs it on each program that it builds.
GOFLAGS='' go build -C tools/release -trimpath -buildvcs=false -o "$PWD/dist-extra/sbom" ./sbom

put dist-extra/ca-certificates.crt go run -C tools/release ./roots

# As old as the commit: nfpm takes the times from here.
find dist-extra -exec touch -d "@$(git log -1 --format=%ct)" {} +
