#!/bin/sh
# The MinIO server that the e2e tests run against: the version that e2e/minio/go.mod
# pins, on a loopback port.
#
#   sh e2e/minio.sh build          build it, once
#   sh e2e/minio.sh here           report by the exit code whether it needs no build
#   sh e2e/minio.sh up             start it, and wait until it is ready
#   sh e2e/minio.sh stop           stop it, keeping its data
#   sh e2e/minio.sh start          start it again
#   sh e2e/minio.sh down           take it down; nothing is left but what was built
#   sh e2e/minio.sh url            print where it is
#   sh e2e/minio.sh with COMMAND…  up, the command with the tests' environment, down
#
# Where Docker is, it runs in a container, by docker-compose.yml and e2e/minio/compose.yml; else, and with
# REPOLOCK_E2E_DOCKER=no, as a process. If Compose fails, as by a timeout on a busy machine, it runs as a
# process too. REPOLOCK_E2E_PORT is its port; if that is unset, it
# is the first that is free of 19000 to 19099.
#
# What is built is kept outside of this tree, for each clone of it and each later run: in
# REPOLOCK_E2E_CACHE, by default ~/.cache/repolock-e2e. It can be deleted if no server is up.
# If Docker has an image of MinIO's own of that version, the server is copied from there.
#
# REPOLOCK_E2E_RELEASE=2025-04 has all of this done with an older version instead, the
# one that e2e/minio/2025-04.mod pins. It runs as a process.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
home=$root/e2e/minio
release=${REPOLOCK_E2E_RELEASE:-}
mod=${release:-go}.mod
[ -e "$home/$mod" ] || {
	echo "minio: there is no e2e/minio/$mod: REPOLOCK_E2E_RELEASE is 2025-04 or unset" >&2
	exit 1
}
. "$root/e2e/aloud.sh"

# what_is_built changes with all that the programs are built from.
what_is_built() { (cd "$home" && { cat "$mod" "${mod%.mod}.sum" probe/main.go Dockerfile; go version; } | cksum | tr ' ' -); }

cache=${REPOLOCK_E2E_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/repolock-e2e}
bin=$cache/minio-$(what_is_built)
clone=$(printf %s "$root" | cksum | tr ' ' -)
run=$cache/run${release:+-$release}-$clone # there while the server is up: its mode, and a process's pid, log and data

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

built() { [ -x "$bin/minio" ]; }

here() { built || image >/dev/null; }

# build makes a directory of its own, and moves it into place whole: another clone can build
# the same at the same time.
build() {
	! built || return 0
	new=$bin.$$
	mkdir -p "$new" || die "set REPOLOCK_E2E_CACHE to a directory that can be written"
	aloud "building MinIO"
	go_build ./probe
	if image=$(image); then
		say "copying it from $image"
		from "$image" || die "it can't be copied from $image"
	else
		say "building github.com/minio/minio $(version): once, in up to ten minutes on a cold cache"
		go_build github.com/minio/minio
	fi
	quiet
	cp "$home/Dockerfile" "$new/"
	mv "$new" "$bin" 2>/dev/null || true
	rm -rf "$new" "${bin:?}/${new##*/}" # mv puts it into a directory that is there
	built
}

go_build() {
	CGO_ENABLED=0 go build -C "$home" -buildvcs=false -modfile="$mod" -ldflags='-s -w' -o "$new/" "$@" || die "it can't be built"
}

version() { awk '$1 == "github.com/minio/minio" { print $2 }' "$home/$mod"; }

# image prints the name of MinIO's own image of this version, if Docker has it.
image() {
	# v0.0.0-20250907161309-07c3a429bfed is RELEASE.2025-09-07T16-13-09Z.
	set -- "minio/minio:$(version | sed 's/.*-\(....\)\(..\)\(..\)\(..\)\(..\)\(..\)-.*/RELEASE.\1-\2-\3T\4-\5-\6Z/')"
	[ "$(go env GOOS)" = linux ] && docker image inspect "$1" >/dev/null 2>&1 && echo "$1"
}

# from copies the server from an image.
from() {
	container=$(docker create "$1") && docker cp "$container:/usr/bin/minio" "$new/minio" && docker rm "$container"
} >/dev/null

# compose by whichever is there; each says no if the daemon doesn't answer.
compose() {
	# The legacy builder needs no plugin, and there is nothing for it to pull.
	export REPOLOCK_E2E_BIN="$bin" REPOLOCK_E2E_CLONE="$clone"
	set -- -p "repolock-e2e-$clone" -f "$root/docker-compose.yml" -f "$home/compose.yml" "$@"
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
	aloud "starting MinIO"
	if has_docker; then echo docker; else echo process; fi >"$run/mode"
	while ! free || ! first_start; do
		if [ -n "$wanted" ] || [ "$port" -ge 19099 ]; then
			rm -rf "$run"
			mine=
			die "port $port is taken: set REPOLOCK_E2E_PORT to another"
		fi
		at $((port + 1))
	done
	quiet
}

free() { "$bin/probe" free "$address" 2>/dev/null; }

# first_start fails if another program has taken the port meanwhile.
first_start() {
	echo "$port" >"$run/port"
	if [ "$(mode)" = process ]; then
		say "starting it as a process, at $(url)"
		start
		return
	fi
	say "starting it in a container, at $(url)"
	# Interrupted, a build would leave an image without a name.
	if (trap '' INT TERM HUP && compose up -d --build) >"$run/log" 2>&1; then
		wait_ready
		return
	fi
	failed=$(tail -n 5 "$run/log")
	clear_away || true
	free || return 1 # another program has taken the port
	say "Docker Compose can't start it, so it runs as a process: $failed"
	touch "$run/left" # the container might still come
	echo process >"$run/mode"
	start
}

# clear_away removes the container, its data and its image.
clear_away() { compose down -v --rmi all --remove-orphans -t 5 >"$run/log" 2>&1; }

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

# wait_ready fails if the server has ended, or never is ready. Another's server can be, at its port.
wait_ready() {
	until_true 600 ready_or_ended
	if [ "$(mode)" = process ]; then
		! ended || free || return 1 # it found its port taken
	else
		compose logs >"$run/log" 2>&1 || true
	fi
	{ ! ended && ready; } || die "it doesn't get ready: $(tail -n 20 "$run/log")"
}

ready_or_ended() { ready || ended; }

# running: the pid file outlives a crash of the machine, and then it isn't ours.
running() {
	[ "$(mode)" = process ] || return 0 # Docker knows
	pid=$(cat "$run/pid")
	kill -0 "$pid" && { ! command -v ps || ps -p "$pid" -o args= | grep -F "$run/data"; }
} >/dev/null 2>&1

ended() { ! running; }

stop() {
	mode=$(mode)
	if [ "$mode" = docker ]; then
		compose stop -t 5 >/dev/null 2>&1
		return
	fi
	if running; then
		kill "$pid"
		until_true 10 ended || kill -9 "$pid"
	fi
}

down() {
	[ -d "$run" ] || return 0
	case $(cat "$run/mode" 2>/dev/null) in
	docker) clear_away || die "it can't be taken down: $(cat "$run/log")" ;;
	process) stop ;;
	esac
	[ ! -e "$run/left" ] || clear_away || say "Docker might still have its container: docker ps"
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

trap quiet EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
build | here | up | stop | start | down | url | with) "$verb" "$@" ;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
	exit 64
	;;
esac
