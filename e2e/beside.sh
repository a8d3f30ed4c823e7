#!/bin/sh
# Races Cloudstic's own program with repolock, and prints a row of a table for each kind of race:
#
#   sh e2e/beside.sh CLOUDSTIC [FLAG…]
#
# CLOUDSTIC is a copy of Cloudstic's repository. Its program is built with one addition: a command waits before its lock
# for the time at which it begins, and notes how long it has the lock. FLAGs are those of e2e/peers/beside: -only CELL
# and -runs N run a part of the table. BEFORE is the path of an earlier repolock, to compare with. With REPOLOCK_E2E_MINIO
# (make beside-cloudstic sets it) the S3 server is that MinIO, else the one of the tests.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
[ -e "${1:-}/internal/engine/repolock.go" ] || {
	echo "beside: name a copy of Cloudstic's repository: make beside-cloudstic CLOUDSTIC=PATH" >&2
	exit 64
}
theirs=$(cd "$1" && pwd)
shift
dir=$(mktemp -d /tmp/repolock-beside.XXXXXX)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM

cp "$root/e2e/peers/beside/gate.go.txt" "$dir/gate.go"
printf '{"Replace":{"%s/internal/engine/beside.go":"%s/gate.go"' "$theirs" "$dir" >"$dir/overlay.json"
for file in backup prune; do
	sed 's/lock, err := Acquire/besideGate(); &/; s/defer lock.Release()/&; besideHold(lock)/' "$theirs/internal/engine/$file.go" >"$dir/$file.go"
	grep -q 'besideGate();' "$dir/$file.go" && grep -q 'besideHold(lock)' "$dir/$file.go" || {
		echo "beside: $file.go of this Cloudstic takes its lock in another way" >&2
		exit 1
	}
	printf ',"%s/internal/engine/%s.go":"%s/%s.go"' "$theirs" "$file" "$dir" "$file" >>"$dir/overlay.json"
done
echo '}}' >>"$dir/overlay.json"
go build -C "$theirs" -overlay "$dir/overlay.json" -o "$dir/cloudstic" ./cmd/cloudstic
go build -C "$root" -o "$dir/repolock" ./cmd/repolock
go build -C "$root" -o "$dir/beside" ./e2e/peers/beside
"$dir/beside" -dir "$dir" -cloudstic "$dir/cloudstic" -repolock "$dir/repolock" -before "${BEFORE:-}" -s3 "${REPOLOCK_E2E_MINIO:-}" "$@"
