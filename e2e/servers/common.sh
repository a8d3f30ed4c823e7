# What the scripts that try servers share. A script sources it, after it has set root, the top of the project:
#
#   die WHAT            ends with 1
#   need PROGRAM…       dies unless the programs are in PATH
#   torture URL         lets six processes of repolock torture contend for $seconds, and kills and stops them.
#                       acquired and overlaps are what its judge has found
. "$root/e2e/aloud.sh"

PATH=$PATH:/usr/sbin
today=$(date -u +%Y-%m-%d)

die() {
	echo "$(basename "$0"): $*" >&2
	exit 1
}

need() {
	for program; do
		command -v "$program" >/dev/null || die "$program is missing: make programs installs it"
	done
}

# shellcheck disable=SC2154 # the script sets tmp and seconds
torture() {
	timeout $((seconds + 120)) "$tmp/repolock" -r "$1" --json torture --duration "${seconds}s" >"$tmp/torture.json" 2>"$tmp/torture.log" || true
	acquired=$(jq -rs 'map(.acquisitions // empty) | last // 0' "$tmp/torture.json" 2>&1) || acquired=0
	overlaps=$(jq -rs 'map(.violations | arrays | length) | last // "-"' "$tmp/torture.json" 2>&1) || overlaps=unknown
}
