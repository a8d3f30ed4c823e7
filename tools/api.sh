#!/bin/sh
# Compares the exported API with the last release's. An incompatible change fails, unless
# CHANGELOG.md announces one: an entry under "Unreleased" that begins with "Incompatible:".
set -eu
cd "$(dirname "$0")/.."
module=github.com/repolock/repolock
if ! last=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
	echo "no release yet: the API has nothing to be compared with"
	exit 0
fi
dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/src" 2>/dev/null; rm -rf "$dir"' EXIT
"${GO:-go}" build -modfile=tools/go.mod -o "$dir/apidiff" golang.org/x/exp/cmd/apidiff
git worktree add --quiet --detach "$dir/src" "$last"
apidiff() { "$dir/apidiff" -m "$@" 2>"$dir/log" || { cat "$dir/log" >&2; exit 1; }; }
(cd "$dir/src" && apidiff -w "$dir/api" $module)
changes=$(apidiff -incompatible "$dir/api" $module)
[ -n "$changes" ] || exit 0
echo "incompatible with $last:"
echo "$changes"
sed -n '/^## Unreleased/,/^## v/p' CHANGELOG.md | grep -q '^- Incompatible:' || {
	echo "CHANGELOG.md announces none: begin an entry under Unreleased with \"Incompatible:\""
	exit 1
}
