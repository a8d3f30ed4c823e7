# steps.sh runs steps one after another, beside a second lane of steps, and prints a table of all at
# the end. Source it in bash:
#
#   step NAME SECONDS COMMAND…   run it. SECONDS is its share of the whole run on two quiet processors: a
#                                step that took longer says so in the table, and fails nothing
#   beside FUNCTION              run a function of other steps in a second lane; its output is printed at the end
#   after_beside                 wait for the second lane
#   finish SECONDS               wait for the second lane, print the table and the names of the tests that
#                                failed, and exit with 1 if a step failed
#
# A step that fails ends no other step: one run shows all that is wrong.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

records=$(mktemp -d "${TMPDIR:-/tmp}/repolock-steps.XXXXXX")
lane= # the process group of the second lane, while it runs
trap '[ -z "$lane" ] || kill -- "-$lane" 2>/dev/null; rm -rf "$records"' EXIT
started=$SECONDS

step() {
	local name=$1 share=$2 began=$SECONDS code out
	shift 2
	out=$(mktemp "$records/XXXXXX")
	printf '\n=== %s\n' "$name"
	set +e
	(
		set -e
		trap 'times >"$out.cpu"' EXIT
		"$@"
	) 2>&1 </dev/null | tee "$out"
	code=${PIPESTATUS[0]}
	set -e
	[ "$code" = 0 ] || printf '\n=== failed: %s\n' "$name"
	printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$((SECONDS - began))" "$share" "$code" "$(cpu_of "$out.cpu")" "$(counted "$out")" >>"$records/table"
	grep '^failed: ' "$out" >>"$records/failed" || sed -nE 's/^ *--- FAIL: ([^ ]+).*/failed: \1/p' "$out" >>"$records/failed"
}

# cpu_of returns the seconds of processor time in what the shell's times printed.
cpu_of() { sed '1d; s/[ms]/ /g' "$1" | awk '{ printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }'; } # the first line is the shell's own

# counted returns the last line of an output that says how much was done.
counted() { grep -E '[0-9]+ (passed|tests|mutants|histories|states|files|runs)|[0-9] of [0-9]|[0-9] violations|^PASS|^ok ' "$1" | tail -n 1 | cut -c 1-100 | tr '\t' ' ' || true; }

beside() {
	set -m # a process group of its own
	("$@") >"$records/lane" 2>&1 </dev/null &
	lane=$!
	set +m
}

after_beside() {
	[ -n "$lane" ] || return 0
	printf '\n=== beside the steps above\n'
	tail -n +1 -f --pid="$lane" "$records/lane"
	wait "$lane" || printf 'the second lane ended\t0\t0\t1\t0\tbefore its last step\n' >>"$records/table"
	lane=
}

finish() {
	local whole=$1 took failed=0
	after_beside
	took=$((SECONDS - started))
	printf '\n%-44s %7s %7s %7s  %s\n' step seconds share CPU counted
	awk -F '\t' '{
		printf "%-44s %7d %7d %7d  %s\n", $1, $2, $3, $5, $6
		if ($4 != 0) bad = bad "step failed: " $1 "\n"
		if ($2 > $3) late = late sprintf("longer than its share of %d s: %s, %d s\n", $3, $1, $2)
		cpu += $5
	} END {
		printf "%-44s %7d %7d %7d\n\n%s%s", "all", took, whole, cpu, late, bad
	}' took="$took" whole="$whole" "$records/table"
	[ "$took" -le "$whole" ] || echo "longer than the $whole s that it should take"
	cat "$records/failed"
	! awk -F '\t' '$4 != 0' "$records/table" | grep -q . || failed=1
	exit "$failed"
}
