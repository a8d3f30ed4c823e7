#!/bin/sh
# Builds the packages of the commit that is checked out, and the image where there is
# Docker, into dist/. A commit with a tag is a release, any other a snapshot. Run it in a
# clone and not in a linked worktree, whose commit Go can't find.
set -eu
umask 022
cd "$(dirname "$0")/.."

[ -d .git ] || {
	echo "packages: not a clone: Go would record no version (git clone it first)" >&2
	exit 78
}
changes=$(git status --porcelain)
[ -z "$changes" ] || {
	echo "packages: these aren't in the commit that the packages would be named after:" >&2
	echo "$changes" >&2
	exit 78
}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
snapshot=--snapshot
if git describe --exact-match --tags --match 'v*' >/dev/null 2>&1; then snapshot=; fi
go tool -modfile=tools/release/go.mod goreleaser release --clean $snapshot

if docker version >/dev/null 2>&1; then
	sh packaging/image.sh
else
	echo "packages: no image: Docker doesn't answer" >&2
fi
