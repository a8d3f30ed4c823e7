#!/bin/sh
# The MinIO server that the e2e tests run against: the version that e2e/minio/go.mod
# pins, on a loopback port.
#
#   sh e2e/minio.sh build          build it, once
#   sh e2e/minio.sh up             start it, and wait until it is ready
#   sh e2e/minio.sh stop           stop it, keeping its data
#   sh e2e/minio.sh start          start it again
#   sh e2e/minio.sh down           take it down; nothing is left but what was built
#   sh e2e/minio.sh url            print where it is
#   sh e2e/minio.sh with COMMAND…  up, the command with the tests' environment, down
#
# Where Docker is, it runs in a container, by docker-compose.yml; else, and with
# REPOLOCK_E2E_DOCKER=no, as a process. REPOLOCK_E2E_PORT is its port; if that is unset, it
# is the first that is free of 19000 to 19099.
#
# REPOLOCK_E2E_RELEASE=2025-04 has all of this done with an older version instead, the
# one that e2e/minio/2025-04.mod pins. It runs as a process.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
home=$root/e2e/minio
release=${REPOLOCK_E2E_RELEASE:-}
mod=${release:-go}.mod
bin=$home/bin${release:+-$release}
run=$home/run${release:+-$release} # there while the server is up: its mode, and a process's pid, log and data
. "$root/e2e/aloud.sh"

at() {
	port=$1
	address=127.0.0.1:$port
	export REPOLOCK_E2E_PORT="$port"
}
wanted=${REPOLOCK_E2E_PORT:-}
if [ -e "$run/port" ]; then at "$(cat "$run/port")"; else at "${wanted:-19000}"; fi

say() { printf 'minio: %s\n' "$*" >&2; }
die() {
	say "$*"
	exit 1
}

# until_true SECONDS COMMAND…: wait for a command to succeed.
until_true() {
	tries=$(($1 * 10))
	shift
	while ! "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.1
	done
}

# what_is_built changes with all that the programs are built from.
what_is_built() { (cd "$home" && { cat "$mod" "${mod%.mod}.sum" probe/main.go; go version; } | cksum); }

build() {
	what=$(what_is_built)
	[ "$(cat "$bin/built" 2>/dev/null)" != "$what" ] || return 0
	say "building $(cd "$home" && go list -modfile="$mod" -m github.com/minio/minio): once, in up to ten minutes on a cold cache"
	rm -rf "$bin"
	mkdir -p "$bin"
	aloud "building MinIO"
	CGO_ENABLED=0 go build -C "$home" -modfile="$mod" -trimpath -ldflags='-s -w' -o "$bin/" github.com/minio/minio ./probe || die "it can't be built"
	quiet
	echo "$what" >"$bin/built"
}

# compose by whichever is there; each says no if the daemon doesn't answer.
compose() {
	# The legacy builder needs no plugin, and there is nothing for it to pull.
	set -- -p "repolock-e2e-$port" -f "$root/docker-compose.yml" "$@"
	if docker compose version >/dev/null 2>&1; then
		docker compose "$@"
	else
		DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0 docker-compose "$@"
	fi
}

# has_docker: the binary is this system's, so a container runs it on Linux alone.
has_docker() {
	[ -z "$release" ] && [ "${REPOLOCK_E2E_DOCKER:-}" != no ] && [ "$(go env GOOS)" = linux ] && compose ps >/dev/null 2>&1
}

ready() { "$bin/probe" ready "$address"; }

up() {
	build
	mkdir "$run" 2>/dev/null || die "it is up already, or wasn't taken down: sh e2e/minio.sh down"
	mine=yes
	until "$bin/probe" free "$address" 2>/dev/null; do
		if [ -n "$wanted" ] || [ "$port" -ge 19099 ]; then
			rm -rf "$run"
			mine=
			die "port $port is taken: set REPOLOCK_E2E_PORT to another"
		fi
		at $((port + 1))
	done
	echo "$port" >"$run/port"
	aloud "starting MinIO"
	if has_docker; then
		say "starting it in a container, at $(url)"
		echo docker >"$run/mode"
		# Interrupted, a build would leave an image without a name.
		(trap '' INT TERM HUP && compose up -d --build) >"$run/log" 2>&1 ||
			die "docker compose can't start it: $(cat "$run/log")"
		wait_ready
	else
		say "starting it as a process, at $(url)"
		echo process >"$run/mode"
		start
	fi
	quiet
}

mode() { cat "$run/mode" 2>/dev/null || die "it isn't up: sh e2e/minio.sh up"; }

start() {
	mode=$(mode)
	if [ "$mode" = docker ]; then
		compose start >/dev/null 2>&1
	else
		(
			set -a
			. "$home/server.env"
			exec "$bin/minio" server --quiet --address "$address" "$run/data"
		) >>"$run/log" 2>&1 </dev/null &
		echo $! >"$run/pid"
	fi
	wait_ready
}

wait_ready() {
	until_true 600 ready && return
	[ "$(mode)" = process ] || compose logs >"$run/log" 2>&1 || true
	die "it doesn't get ready: $(tail -n 20 "$run/log")"
}

# running: the pid file outlives a crash of the machine, and then it isn't ours.
running() {
	kill -0 "$pid" && { ! command -v ps || ps -p "$pid" -o args= | grep -F "$run/data"; }
} >/dev/null 2>&1

ended() { ! running; }

stop() {
	mode=$(mode)
	if [ "$mode" = docker ]; then
		compose stop -t 5 >/dev/null 2>&1
		return
	fi
	pid=$(cat "$run/pid")
	if running; then
		kill "$pid"
		until_true 10 ended || kill -9 "$pid"
	fi
}

down() {
	[ -d "$run" ] || return 0
	case $(cat "$run/mode" 2>/dev/null) in
	docker) compose down -v --rmi local --remove-orphans -t 5 >"$run/log" 2>&1 || die "it can't be taken down: $(cat "$run/log")" ;;
	process) stop ;;
	esac
	rm -rf "$run"
}

url() { echo "http://$address"; }

with() {
	mine=
	# shellcheck disable=SC2154
	trap 'code=$?; trap "" INT TERM HUP; quiet; [ -z "$mine" ] || down; exit $code' EXIT
	up
	REPOLOCK_E2E_MINIO=$(url) REPOLOCK_E2E_MINIO_BIN=$bin/minio "$@"
}

[ -e "$home/$mod" ] || die "there is no e2e/minio/$mod: REPOLOCK_E2E_RELEASE is 2025-04 or unset"
trap quiet EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
build | up | stop | start | down | url | with) "$verb" "$@" ;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
	exit 64
	;;
esac
