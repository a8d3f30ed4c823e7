# aloud prints at least every 10 s what a script does. Source it:
#
#   aloud WHAT     from now on, every 8 s: "still WHAT, 16 s"
#   quiet          end that; call it in the trap for EXIT, so that no process is left

aloud_ticker=

aloud() {
	quiet
	aloud_tick "$*" >&2 &
	aloud_ticker=$!
}

# quiet kills the ticker by a signal that can't get lost: a shell that was just forked can
# lose a signal that its parent traps. The ticker's sleep of a second can outlive it.
quiet() {
	[ -n "$aloud_ticker" ] || return 0
	kill -KILL "$aloud_ticker" 2>/dev/null || true
	wait "$aloud_ticker" 2>/dev/null || true
	aloud_ticker=
}

# aloud_tick ends by quiet, or soon after the script if that was killed.
aloud_tick() {
	aloud_since=$(date +%s)
	aloud_next=8
	while sleep 1 </dev/null >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
		aloud_now=$(($(date +%s) - aloud_since))
		[ "$aloud_now" -ge "$aloud_next" ] || continue
		printf 'still %s, %s s\n' "$1" "$aloud_now"
		aloud_next=$((aloud_now + 8))
	done
}
