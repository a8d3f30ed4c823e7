#!/bin/sh
# Has Spin explore every state of the models, and prints how many each has.
#
#   sh spec/run.sh          all of them, in about two minutes
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
printf '%-40s %10s %6s  %s\n' model states s result

# spent BEFORE AFTER prints the processor's seconds between two reports of `times`, whose
# second line is of the children: 1m2.3s 0m0.4s.
spent() {
	LC_ALL=C awk 'FNR == 2 {
		gsub(/[ms]/, " ")
		t = 60 * $1 + $2 + 60 * $3 + $4
		if (NR > 2) printf "%.1f\n", t - was
		was = t
	}' "$@"
}

# check NAME WANT MODEL [OPTION…]: WANT is what the checker must say.
check() {
	name=$1 want=$2 model=$3
	shift 3
	[ -z "$only" ] || [ "$only" = "$name" ] || return 0
	found=yes
	rm -rf "${work:?}"/*
	cp "$here/$model" "$work"
	cd "$work"
	ends= # a client that has stopped for good is in no end state, nor is one that has lost
	case "$model $*" in *LONE* | hold.pml* | queue.pml*) ends=-E ;; esac
	{ spin "$@" -a "$model" && cc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c; } >log 2>&1 || {
		cat log >&2
		exit 1
	}
	times >before
	./pan -m1000000 -w25 -n $ends >out 2>&1 || true
	times >after
	states=$(sed -n 's/^ *\([0-9][0-9]*\) states, stored.*/\1/p' out)
	if grep -q 'assertion violated' out; then
		got=unsafe
	elif grep -q 'errors: 0' out && ! grep -qE 'not completed|too small|out of memory' out; then
		got=safe
	else
		cat out >&2
		got='not explored'
	fi
	printf '%-40s %10s %6s  %s\n' "$name" "$states" "$(spent before after)" "$got"
	if [ -n "$only" ] && [ "$got" = unsafe ]; then spin "$@" -t -p -g "$model"; fi
	[ "$got" = "$want" ] || {
		echo "spec: $name is $got, and must be $want" >&2
		exit 1
	}
}

check two-clients safe lock.pml -DWATCHED
check three-clients-no-resume safe lock.pml -DWATCHED -DN=3 -DG=1
check lone-among-crashed safe lock.pml -DN=3 -DLONE=0 -DG=1
check lone-among-crashed-and-resumed safe lock.pml -DLONE=0
check two-who-wait safe lock.pml -DTICKETS
check one-who-waits-and-a-shared safe lock.pml -DTICKETS -DMODES=1
check shared-who-waits-and-an-exclusive safe lock.pml -DTICKETS -DMODES=2
check lone-among-crashed-who-waited safe lock.pml -DTICKETS -DLONE=1

# The queue: a shared waiter isn't overtaken, and none wait for each other.
check queue safe queue.pml
# More keys have too many states, unless the number of requests that fail is bounded.
check three-clients-one-resumes safe lock.pml -DN=3 -DRESUMERS=1 -DFAULTS=0
check two-who-wait-and-resume safe lock.pml -DTICKETS -DRESUMES -DG=3 -DFAULTS=1
check one-who-waits-and-a-shared-resume safe lock.pml -DTICKETS -DRESUMES -DG=3 -DMODES=1 -DFAULTS=1

# What a holder does: refreshes of an object that fails, and one that doesn't; looks; its
# deadline. DIVIDED: it is safe also if others delete between a look and its put.
check held safe hold.pml -DDIVIDED
check held-without-a-look safe hold.pml -DDIVIDED -DNO_LOOK
check held-by-looks-and-if-match safe hold.pml -DDIVIDED -DLOOKS -DMATCHES
check held-where-no-condition-is-heeded safe hold.pml -DDIVIDED -DLOOKS -DIGNORES
check held-beside-the-original safe hold.pml -DDIVIDED -DORIGINAL

# break-lock lets two in. A broken lock stays broken, and its holder stops at its next look.
check broken safe hold.pml -DBREAK -DBESIDE -DDIVIDED -DSHARED
check broken-with-looks-and-if-match safe hold.pml -DBREAK -DBESIDE -DDIVIDED -DSHARED -DLOOKS -DMATCHES
check broken-if-match-creates safe hold.pml -DBREAK -DBESIDE -DSHARED -DLOOKS -DCREATES
check broken-no-condition-is-heeded safe hold.pml -DBREAK -DBESIDE -DSHARED -DLOOKS -DIGNORES
check broken-exclusive safe hold.pml -DBREAK -DBESIDE -DDIVIDED -DDEADLINE=2 -DTTL=3
check broken-until-the-next-look safe hold.pml -DBREAK -DBESIDE -DDIVIDED -DSTEADY

# A machine is paused, and goes on: its holder acts until its next look is answered.
check paused safe hold.pml -DPAUSED -DBESIDE -DDIVIDED -DSHARED
check paused-with-looks-and-if-match safe hold.pml -DPAUSED -DBESIDE -DDIVIDED -DSHARED -DLOOKS -DMATCHES
check paused-if-match-creates safe hold.pml -DPAUSED -DBESIDE -DSHARED -DLOOKS -DCREATES
check paused-exclusive safe hold.pml -DPAUSED -DBESIDE -DDIVIDED -DDEADLINE=2 -DTTL=3
check paused-until-the-next-look safe hold.pml -DPAUSED -DBESIDE -DDIVIDED -DSTEADY

# A machine is cloned: of its two holders one stops at its next look.
check cloned safe hold.pml -DCLONED -DBESIDE -DDIVIDED
check cloned-no-condition-is-heeded safe hold.pml -DCLONED -DBESIDE -DDIVIDED -DSHARED -DLOOKS -DIGNORES
check cloned-until-the-next-look safe hold.pml -DCLONED -DBESIDE -DDIVIDED -DSTEADY

# lock.exclusive, which only exclusive acquirers overwrite, and only its owner deletes.
check pointer-beside-the-original safe pointer.pml
check pointer-of-a-resumed-holder safe pointer.pml -DRESUMES
check pointer-resumed-without-conditions safe pointer.pml -DRESUMES -DPLAIN_CLAIM -DPLAIN_DELETE
check pointer-claimed-with-the-flag safe pointer.pml -DCLAIM_FIRST
check pointer-of-two-exclusive safe pointer.pml -DTWO
check pointer-of-two-claimed-with-the-flag safe pointer.pml -DTWO -DCLAIM_FIRST

# How If-None-Match is proven while the flag is put.
check proof-of-a-kept-condition safe proof.pml
check proof-of-an-ignored-condition safe proof.pml -DIGNORES

# The same with one rule left out each.
check look-before-flag unsafe lock.pml -DLOOK_FIRST
check pass-without-delete unsafe lock.pml -DNO_REAP
check no-deadline unsafe lock.pml -DNO_DEADLINE
check resume-under-the-same-key unsafe lock.pml -DSAME_KEY
check resume-without-the-old-flag unsafe lock.pml -DNO_UNPASSED
check resume-by-a-late-refresh unsafe lock.pml -DNO_REVIVED
check old-flag-before-the-look unsafe lock.pml -DUNPASSED_FIRST

check three-resume-without-the-old-flag unsafe lock.pml -DN=3 -DFAULTS=0 -DNO_UNPASSED
check held-under-the-tickets-key unsafe lock.pml -DPROMOTE
check queue-shared-leave-no-ticket unsafe queue.pml -DNO_SHARED_TICKET
check queue-shared-yield-to-all unsafe queue.pml -DYIELDS_TO_ALL
check resumed-under-the-tickets-key unsafe lock.pml -DTICKETS -DRESUMES -DFAULTS=1

check look-under-the-same-key unsafe lock.pml -DWATCHED -DSAME_KEY
check stale-is-never-passed unsafe lock.pml -DLONE=0 -DNO_STALE

check lease-from-the-last-send unsafe hold.pml -DDIVIDED -DDATED_BY_THE_LAST
check lease-from-the-flag-alone unsafe hold.pml -DDIVIDED -DORIGINAL -DDATED_BY_THE_FLAG
check broken-and-looks-change-nothing unsafe hold.pml -DBREAK -DBESIDE -DDIVIDED -DBLIND
check broken-without-a-look unsafe hold.pml -DBREAK -DBESIDE -DDIVIDED -DSTEADY -DNO_LOOK
check broken-if-match-alone-creates unsafe hold.pml -DBREAK -DBESIDE -DSHARED -DCREATES
check broken-if-match-alone-is-ignored unsafe hold.pml -DBREAK -DBESIDE -DSHARED -DIGNORES
check paused-and-looks-change-nothing unsafe hold.pml -DPAUSED -DBESIDE -DDIVIDED -DBLIND
check paused-without-a-look unsafe hold.pml -DPAUSED -DBESIDE -DDIVIDED -DSTEADY -DNO_LOOK
check paused-if-match-alone-creates unsafe hold.pml -DPAUSED -DBESIDE -DSHARED -DCREATES
check cloned-own-by-id unsafe hold.pml -DCLONED -DBESIDE -DDIVIDED -DOWN_BY_ID
check cloned-without-a-look unsafe hold.pml -DCLONED -DBESIDE -DDIVIDED -DSTEADY -DNO_LOOK
check pointer-deleted-by-a-shared-acquirer unsafe pointer.pml -DSHARED_DELETES
check pointer-as-the-proof-of-a-resume unsafe pointer.pml -DRESUMES -DBY_THE_POINTER
check pointer-passed-and-intent-left unsafe pointer.pml -DRESUMES -DNO_REAP
check pointer-deleted-without-a-look unsafe pointer.pml -DBLIND_DELETE
check proof-by-any-answer unsafe proof.pml -DIGNORES -DANY_ANSWER
check proof-by-one-put unsafe proof.pml -DONE_PUT

# The known limits: the same without an assumption.
check limit-break-lets-two-in unsafe hold.pml -DBREAK -DDIVIDED
check limit-broken-between-look-and-put unsafe hold.pml -DBREAK -DBESIDE -DDIVIDED -DSHARED -DLOOKS -DCREATES
check limit-paused unsafe hold.pml -DPAUSED -DDIVIDED
check limit-paused-between-look-and-put unsafe hold.pml -DPAUSED -DBESIDE -DDIVIDED -DSHARED -DLOOKS -DCREATES
check limit-original-and-a-late-refresh unsafe hold.pml -DDIVIDED -DORIGINAL -DLOOKS -DIGNORES
check limit-original-claim-without-condition unsafe pointer.pml -DPLAIN_CLAIM
check limit-original-delete-without-condition unsafe pointer.pml -DPLAIN_DELETE

check original-two-exclusive unsafe original.pml
check original-shared-and-exclusive unsafe original.pml -DMODES=1

[ -n "$found" ] || {
	echo "spec: no model has the name $only" >&2
	exit 64
}
