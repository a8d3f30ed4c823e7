#!/bin/sh
# test.sh runs go test, prints at least every 10 s that it still runs, and ends with the names of the tests
# that failed and the number of packages that passed:
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
echo "go test $*"
aloud testing
{ "${GO:-go}" test -p "$beside" "$@" 2>&1 && : >"$dir/passed"; } | tee "$dir/out"
quiet
tab=$(printf '\t')
sed -nE "s/^ *--- FAIL: ([^ ]+).*/failed: \\1/p; s/^FAIL$tab([^ $tab]+).*/failed: \\1/p" "$dir/out"
echo "packages: $(grep -c "^ok  *$tab" "$dir/out" || true) passed, $(grep -c "^FAIL$tab" "$dir/out" || true) failed"
[ -e "$dir/passed" ]
