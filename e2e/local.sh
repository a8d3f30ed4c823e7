#!/bin/sh
# Two real backups and a real prune on a local directory, kept apart by repolock.
# It needs Go, and works in a temporary directory that it removes.
set -eu

cat <<'EOF'
This builds repolock, runs two real backups and a real prune with it, kills a
holder, and draws what happened. It works in a temporary directory, which takes
about 400 MB meanwhile and is removed.
The first time Go downloads about 65 MB and keeps about 600 MB in its caches, in
one to three minutes on two processors. The rest takes about 20 s. A busy machine
takes longer; a line every 8 s shows the progress.
EOF
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

# counted WHAT OF COMMAND…: run a command that prints a line to its standard error for each
# thing that it has done, and show how many: on a terminal in place, elsewhere every 8 s and at
# the end.
counted() {
	what=$1
	of=$2
	shift 2
	quiet
	"$@" 2>"$work/done" &
	pid=$!
	running=$pid
	since=$(date +%s)
	next=8
	while kill -0 "$pid" 2>/dev/null; do
		took=$(($(date +%s) - since))
		line="$what: $(wc -l <"$work/done" | tr -d ' ')$of, $took s"
		if [ -t 1 ]; then
			printf '\r%s ' "$line"
		elif [ "$took" -ge "$next" ]; then
			echo "$line"
			next=$((took + 8))
		fi
		sleep 0.2
	done
	[ ! -t 1 ] || printf '\r%*s\r' 60 ''
	wait "$pid" || {
		cat "$work/done" >&2
		die "$what failed"
	}
	running=
	echo "$what: $(wc -l <"$work/done" | tr -d ' ')$of, $(($(date +%s) - since)) s"
}

# The binary is for here: it needs no version of git's, which doesn't read a tree of another user.
say "building repolock"
packages() { go list -deps -buildvcs=false ./cmd/repolock >"$work/packages"; }
counted "modules downloaded" "" packages
counted "packages compiled" " of at most $(wc -l <"$work/packages" | tr -d ' ')" \
	go build -v -buildvcs=false -o "$work/repolock" ./cmd/repolock
PATH="$work:$PATH"
export REPOLOCK_REPO="$work/repo" REPOLOCK_AUDIT="$work/audit" XDG_CACHE_HOME="$work/cache"
source=$(go env GOROOT)/src
mkdir "$REPOLOCK_REPO" "$REPOLOCK_REPO/snapshots"
echo "a repository of tar files" >"$REPOLOCK_REPO/README"

# A backup is a tar of Go's own source into the repository. When it is done it waits
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
	repolock backup -- "$work/backup" $n "$source" &
	eval "pid_$n=$!"
	running="$running $!"
done
until_true test -e "$work/started-one" -a -e "$work/started-two" || die "the backups didn't both start"
repolock status

say "a prune meanwhile is refused"
code=0
repolock prune -- "$work/prune" || code=$?
[ "$code" = 75 ] || die "prune exited $code, not 75"
repolock status --json >"$work/status"
for pid in "$pid_one" "$pid_two"; do
	grep -Eq "\(pid $pid\)|\"pid\": $pid,?\$" "$work/status" || die "pid $pid holds no lock"
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
	# A system without an init, as in a container, keeps a zombie of a process that has ended.
	gone() { ! kill -0 "$(cat "$work/$who")" 2>/dev/null || grep "^State:[[:space:]]*Z" "/proc/$(cat "$work/$who")/status"; }
	until_true gone || die "the $who lives on"
done
repolock status
repolock prune --ttl 10s --wait 10m -- true || die "the lock didn't free itself"
echo "free again $(($(date +%s) - killed)) s after the kill, without any manual step"

say "what happened, from the log of --audit"
# A line for each lock of repolock history: a column is a fortieth of the whole time.
repolock history --json "$REPOLOCK_AUDIT" >"$work/history"
awk '
	function seconds(t) {
		split(substr(t, 12), part, /[:Z]/)
		t = part[1] * 3600 + part[2] * 60 + part[3]
		if (!begun) begin = t
		begun = 1
		if (t < begin) t += 86400
		if (t > last) last = t
		return t
	}
	function column(t) { return int((t - begin) * 39 / (last - begin)) }
	/^ *"[a-z_]*": / {
		name = $1; gsub(/[":]/, "", name)
		value = $0; sub(/^[^:]*: "?/, "", value); sub(/"?,?$/, "", value)
		if (name == "lock_name") n++
		if (name == "mode") mode[n] = value
		if (name == "operation") operation[n] = value
		if (name == "asked_at") asked[n] = seconds(value)
		if (name == "acquired_at") held[n] = seconds(value)
		if (name == "ended_at") ended[n] = seconds(value)
		if (name == "outcome") outcome[n] = value
	}
	/^ *"removals"/ { exit }
	END {
		if (last <= begin) last = begin + 1
		printf "%-17s0 s%36.1f s\n", "", last - begin
		for (i = 1; i <= n; i++) {
			line = ""
			freed = 40 # the column in which the next exclusive lock begins
			for (j = 1; i in held && j <= n; j++)
				if (mode[j] == "exclusive" && j in held && held[j] > held[i] && column(held[j]) < freed) freed = column(held[j])
			for (c = 0; c < 40; c++) {
				mark = " "
				if (c >= column(asked[i]) && c <= column(i in held ? held[i] : asked[i])) mark = i in held ? "." : "x"
				if (i in held && c >= column(held[i])) mark = i in ended ? (c <= column(ended[i]) ? "#" : " ") : (c == column(held[i]) ? "#" : c < freed ? "?" : " ")
				line = line mark
			}
			said = outcome[i]
			sub(/[:;].*/, "", said)
			if (said == "") said = "no end: it was killed"
			printf "%-6s %-9s %s %s\n", operation[i], mode[i], line, said
		}
		print "it waited: .   it held the lock: #   it was refused: x"
		print "it was killed, and its lock expired later: ?"
	}' "$work/history" | cut -c 1-80

quiet
say "all as it should be"
