#!/bin/sh
# Two real backups and a real prune on a local directory, kept apart by repolock.
# It needs Go, and works in a temporary directory that it removes.
set -eu

cd "$(dirname "$0")/.."
. e2e/aloud.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/repolock-e2e.XXXXXX")
running= # processes in the background
trap 'code=$?; trap "" INT TERM HUP; quiet; end_all; rm -rf "$work"; exit $code' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# end_all leaves no process behind.
end_all() {
	for pid in $running; do kill "$pid" 2>/dev/null || true; done
	for pid in $running; do wait "$pid" 2>/dev/null || true; done
}

say() {
	printf '\n== %s\n' "$*"
	aloud "at this: $*"
}
die() {
	printf 'FAILED: %s\n' "$*" >&2
	exit 1
}

# until_true COMMAND…: wait for a command to succeed. Only a hang reaches the limit.
until_true() {
	tries=12000
	while ! "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.05
	done
}

say "building repolock"
go build -o "$work/repolock" ./cmd/repolock
PATH="$work:$PATH"
export REPOLOCK_REPO="$work/repo"
goroot=$(go env GOROOT)
mkdir "$REPOLOCK_REPO" "$REPOLOCK_REPO/snapshots"

# A backup is a tar of the Go tree into the repository. When it is done it waits
# until the prune below was refused, so that the three are sure to meet.
cat >"$work/backup" <<'EOF'
#!/bin/sh
set -eu
touch "$WORK/started-$1"
tar -C "$2" -cf "$REPOLOCK_REPO/snapshots/$1.part" .
mv "$REPOLOCK_REPO/snapshots/$1.part" "$REPOLOCK_REPO/snapshots/$1.tar"
tries=0
until [ -e "$WORK/refused" ] || [ "$tries" -gt 12000 ]; do
	sleep 0.05
	tries=$((tries + 1))
done
touch "$WORK/ended-$1"
EOF
# A prune keeps the newest snapshot alone. It would take a running backup's.
cat >"$work/prune" <<'EOF'
#!/bin/sh
set -eu
repolock status
if ls "$REPOLOCK_REPO"/snapshots/*.part 2>/dev/null; then
	echo "a backup is running" >&2
	exit 1
fi
ls -t "$REPOLOCK_REPO"/snapshots/*.tar | sed 1d | while read -r old; do
	echo "removing ${old##*/}"
	rm "$old"
done
EOF
chmod +x "$work/backup" "$work/prune"
export WORK="$work"

say "two backups at once"
for n in one two; do
	repolock backup -- "$work/backup" $n "$goroot" &
	eval "pid_$n=$!"
	running="$running $!"
done
until_true test -e "$work/started-one" -a -e "$work/started-two" || die "the backups didn't both start"
repolock status

say "a prune meanwhile is refused"
code=0
repolock prune -- "$work/prune" 2>"$work/refusal" || code=$?
cat "$work/refusal"
[ "$code" = 75 ] || die "prune exited $code, not 75"
for pid in "$pid_one" "$pid_two"; do
	grep -q "(pid $pid)" "$work/refusal" || die "the refusal doesn't name pid $pid"
done
if [ -e "$work/ended-one" ] || [ -e "$work/ended-two" ]; then die "the backups didn't overlap with the prune"; fi
touch "$work/refused"
wait "$pid_one" || die "backup one failed"
wait "$pid_two" || die "backup two failed"
running=
for n in one two; do
	tar -tf "$REPOLOCK_REPO/snapshots/$n.tar" >"$work/list" || die "snapshot $n can't be read"
	echo "snapshot $n: $(wc -l <"$work/list") files, $(wc -c <"$REPOLOCK_REPO/snapshots/$n.tar") bytes"
done

say "after them the prune runs alone"
repolock prune -- "$work/prune"
[ "$(ls "$REPOLOCK_REPO/snapshots" | wc -l)" -eq 1 ] || die "the prune left more than one snapshot"
left=$(find "$REPOLOCK_REPO/index" ! -type d)
[ -z "$left" ] || die "something is left of the locks: $left"

say "a holder is killed with kill -9: its command dies, and the lock frees itself"
# shellcheck disable=SC2016
repolock backup --ttl 10s -- sh -c 'echo $$ >"$WORK/child"; sleep 600 & echo $! >"$WORK/grandchild"; wait' &
holder=$!
running=$holder
until_true test -s "$work/grandchild" || die "the backup didn't start"
kill -9 "$holder"
killed=$(date +%s)
running=
for who in child grandchild; do
	gone() { ! kill -0 "$(cat "$work/$who")"; }
	until_true gone || die "the $who lives on"
done
repolock status
# A prune that begins later than ttl + 5 s must not be refused.
while :; do
	began=$(($(date +%s) - killed))
	code=0
	repolock prune --quiet --ttl 10s -- true 2>"$work/refusal" || code=$?
	[ "$code" != 0 ] || break
	[ "$code" = 75 ] || die "prune exited $code, not 75 or 0: $(cat "$work/refusal")"
	[ "$began" -le 15 ] || die "the lock didn't free itself"
	sleep 1
done
echo "free again $(($(date +%s) - killed)) s after the kill, without any manual step"

quiet
say "all as it should be"
