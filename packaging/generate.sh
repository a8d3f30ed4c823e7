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

# The commands that can write of themselves are run from the tree: they say the same on
# every system.
repolock() { go run -trimpath ./cmd/repolock "$@"; }

# put FILE COMMAND…: what the command prints becomes a file.
put() {
	mkdir -p "$(dirname "$1")"
	file=$1
	shift
	"$@" >"$file"
}

# HERE go the man page and the completions, a line for each file (zsh's
# is elsewhere on Debian):
#put "$share/man/man1/repolock.1" repolock man
#put "$share/bash-completion/completions/repolock" repolock completion bash
#put "$share/zsh/site-functions/_repolock" repolock completion zsh
#put "$share/zsh/vendor-completions/_repolock" repolock completion zsh
#put "$share/fish/vendor_completions.d/repolock.fish" repolock completion fish

put dist-extra/ca-certificates.crt go run -C tools/release ./roots

# As old as the commit: nfpm takes the times from here.
find dist-extra -exec touch -d "@$(git log -1 --format=%ct)" {} +
