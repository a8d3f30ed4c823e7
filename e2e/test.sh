#!/bin/sh
# test.sh runs go test, prints at least every 10 s what runs, and closes with a summary:
#
#   sh e2e/test.sh ARGUMENTS…
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/aloud.sh"
go=${GO:-go}
dir=$(mktemp -d "${TMPDIR:-/tmp}/repolock-test.XXXXXX")
trap 'code=$?; trap "" INT TERM HUP; quiet; rm -rf "$dir"; exit $code' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

aloud "building the program that runs the tests"
"$go" build -C "$here/.." -buildvcs=false -o "$dir/gotest" ./internal/tool/gotest
quiet
"$dir/gotest" "$go" "$@"
