#!/bin/bash
# tower-fleet.sh DIR TTL COMMAND…: run a command under the lock that the script of the
# specification tower-fleet/lock/v1 takes, from its text, with a heartbeat at a third of the ttl
# as the specification requires.
set -euo pipefail
document=$(dirname "$0")/../../locking/towerfleet/testdata/tower-fleet-lock-v1.txt
# shellcheck source=/dev/null
source <(sed -n '/^#!\/bin\/bash$/,/^export -f acquire_lock/p' "$document")
# shellcheck source=/dev/null
source <(sed -n '/^update_heartbeat() {$/,/^}$/p' "$document")
LOCK_DIR=$1 DEFAULT_TTL=$2
shift 2
request=req_$$_$RANDOM
acquire_lock torture "$request" torture 1 >/dev/null || exit 75
while sleep $((DEFAULT_TTL / 3)); do
	update_heartbeat "$LOCK_DIR/torture.lock" || true
done &
heart=$!
trap 'kill "$heart" 2>/dev/null; release_lock torture "$request" >/dev/null' EXIT
"$@"
