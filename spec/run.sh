#!/bin/sh
# Has Spin look at every state of the models, and says how many each has.
#
#   sh spec/run.sh          all that is done in a few minutes
#   sh spec/run.sh NAME     one of them, with the steps that lead to what it finds
#
# It needs spin (Debian: apt-get install spin) and a C compiler.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/repolock-spec.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
command -v spin >/dev/null || {
	echo "spec: spin is missing: apt-get install spin" >&2
	exit 1
}
only=${1:-}
found=
printf '%-34s %14s  %s\n' model states result

# check NAME WANT MODEL [OPTION…]: WANT is what the checker must say.
check() {
	name=$1 want=$2 model=$3
	shift 3
	[ -z "$only" ] || [ "$only" = "$name" ] || return 0
	found=yes
	rm -rf "${work:?}"/*
	cp "$here/$model" "$work"
	cd "$work"
	ends= # a client that has stopped for good is in no end state
	case $* in *LONE*) ends=-E ;; esac
	{ spin "$@" -a "$model" && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; } >log 2>&1 || {
		cat log >&2
		exit 1
	}
	./pan -m1000000 -w26 -n $ends >out 2>&1 || true
	states=$(sed -n 's/^ *\([0-9][0-9]*\) states, stored.*/\1/p' out)
	if grep -q 'assertion violated' out; then
		got=unsafe
	elif grep -q 'errors: 0' out && ! grep -qE 'not completed|too small|out of memory' out; then
		got=safe
	else
		cat out >&2
		got='not explored'
	fi
	printf '%-34s %14s  %s\n' "$name" "$states" "$got"
	if [ -n "$only" ] && [ "$got" = unsafe ]; then spin "$@" -t -p -g "$model"; fi
	[ "$got" = "$want" ] || {
		echo "spec: $name is $got, and must be $want" >&2
		exit 1
	}
}

check two-clients safe lock.pml
check three-clients-no-resume safe lock.pml -DN=3 -DG=1
check lone-among-crashed safe lock.pml -DN=3 -DLONE=0 -DG=1
check lone-among-crashed-and-resumed safe lock.pml -DLONE=0
check two-who-wait safe lock.pml -DTICKETS
check one-who-waits-and-a-shared safe lock.pml -DTICKETS -DMODES=1
check lone-among-crashed-who-waited safe lock.pml -DTICKETS -DLONE=1

# The same with one rule left out each.
check look-before-flag unsafe lock.pml -DLOOK_FIRST
check pass-without-delete unsafe lock.pml -DNO_REAP
check no-deadline unsafe lock.pml -DNO_DEADLINE
check resume-under-the-same-key unsafe lock.pml -DSAME_KEY
check resume-without-the-old-flag unsafe lock.pml -DNO_UNPASSED
check resume-by-a-late-refresh unsafe lock.pml -DNO_REVIVED
check old-flag-before-the-look unsafe lock.pml -DUNPASSED_FIRST

check held-under-the-tickets-key unsafe lock.pml -DPROMOTE

check stale-is-never-passed unsafe lock.pml -DLONE=0 -DNO_STALE

check original-two-exclusive unsafe original.pml
check original-shared-and-exclusive unsafe original.pml -DMODES=1

[ -n "$found" ] || {
	echo "spec: no model has the name $only" >&2
	exit 64
}
