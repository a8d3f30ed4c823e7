#!/bin/sh
# test.sh runs go test by gotestsum, prints at least every 10 s that it still runs, and ends with the tests that
# were skipped, the slowest ones, the number of tests, and the names of the tests that failed:
#
#   sh e2e/test.sh ARGUMENTS…
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/aloud.sh"
dir=$(mktemp -d "${TMPDIR:-/tmp}/repolock-test.XXXXXX")
trap 'code=$?; trap "" INT TERM HUP; quiet; rm -rf "$dir"; exit $code' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# More packages at a time than there are processors: most tests wait for other processes, and for time.
beside=$((3 * $(getconf _NPROCESSORS_ONLN)))
go=${GO:-go}
gotestsum() { "$go" tool -modfile="$here/../tools/go.mod" gotestsum "$@"; }
echo "go test $*"
aloud testing
{ gotestsum --raw-command --format pkgname-and-test-fails --format-icons text --format-hide-empty-pkg --hide-summary output --jsonfile "$dir/json" -- \
	"$go" test -json -p "$beside" "$@" 2>&1 && : >"$dir/passed"; } | tee "$dir/out"
quiet
gotestsum tool slowest --jsonfile "$dir/json" --num 10
sed -nE 's/^=== FAIL: ([^ ]+ )?([^ ]+).*/failed: \2/p' "$dir/out"
[ -e "$dir/passed" ]
