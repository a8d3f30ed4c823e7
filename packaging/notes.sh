#!/bin/sh
# Prints what CHANGELOG.md says about a version, without its heading: sh packaging/notes.sh v0.1.0
# It fails for a version that CHANGELOG.md doesn't have. The links lead to the pages of that version.
set -eu
cd "$(dirname "$0")/.."
notes=$(awk -v head="## ${1:?which version}" '/^## /{ on = $0 == head || index($0, head " ") == 1; next } on' CHANGELOG.md)
[ -n "$notes" ] || {
	echo "notes: CHANGELOG.md has no section of $1: write one before the tag" >&2
	exit 78
}
printf '%s\n' "$notes" | sed "s|](docs/|](https://github.com/repolock/repolock/blob/$1/docs/|g; /./,\$!d"
