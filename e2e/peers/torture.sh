#!/bin/sh
# torture.sh judges the locks of other programs by e2e/peers/judge:
#
#   sh e2e/peers/torture.sh NAME [FLAG…]
#   sh e2e/peers/torture.sh all [FLAG…]
#
# NAME is one of the names below. FLAGs are further flags of the judge. The script starts the
# servers that it needs, and stops them. It builds the judge and, for its own row, repolock,
# unless REPOLOCK is the path of one. For "all" it exits with 0 if each lock had a verdict,
# and otherwise as the judge does. It keeps no files, unless a FLAG such as --log names one.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
peers=$root/e2e/peers
names="flock flock-o mkdir redis postgres etcd restic tower-fleet cloudstic repolock"
# shellcheck source-path=SCRIPTDIR source=../aloud.sh
. "$root/e2e/aloud.sh"

name=${1:-}
[ $# -eq 0 ] || shift
if [ "$name" = all ]; then
	for name in $names; do
		code=0
		sh "$0" "$name" "$@" || code=$?
		[ "$code" = 0 ] || [ "$code" = 78 ] || exit "$code"
	done
	exit 0
fi
case " $names " in
*" $name "*) ;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
	printf '\nNAME is one of: %s\n' "$names"
	exit 64
	;;
esac

# A socket's path must be short, and a server that runs as another user must reach it.
dir=$(mktemp -d /tmp/repolock-peers.XXXXXX)
chmod 711 "$dir"
server= # the server's process
trap 'code=$?; trap "" INT TERM HUP; quiet; end_server; rm -rf "$dir"; exit $code' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

end_server() {
	[ -n "$server" ] || return 0
	kill "$server" 2>/dev/null || true
	wait "$server" 2>/dev/null || true
}

# until_true COMMAND…: wait for a command to succeed. Only a hang reaches the limit.
until_true() {
	tries=6000
	until "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || {
			echo "this doesn't come true: $*" >&2
			exit 70
		}
		sleep 0.1
	done
}

build() { # NAME PACKAGE
	aloud "building $1"
	go build -C "$root" -o "$dir/$1" "$2"
	quiet
}
build judge ./e2e/peers/judge # go run would lose its exit code

start_redis() {
	redis-server --port 0 --unixsocket "$dir/redis" --save '' --dir "$dir" >"$dir/redis.log" &
	server=$!
	# Under libfaketime redis-cli doesn't start. It needs no clock: the server has one.
	export REDISCLI="env -u LD_PRELOAD redis-cli -s $dir/redis"
	until_true redis-cli -s "$dir/redis" ping
}

# as_postgres runs a command as the user postgres if we are root, as whom no server runs.
as_postgres() {
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid=postgres --regid=postgres --clear-groups "$@"
	else
		"$@"
	fi
}

start_postgres() {
	bin=$(pg_config --bindir 2>/dev/null || true)
	for newest in /usr/lib/postgresql/*/bin; do # Debian's, in no PATH
		[ -x "$bin/initdb" ] || [ ! -x "$newest/initdb" ] || bin=$newest
	done
	mkdir "$dir/pg"
	[ "$(id -u)" != 0 ] || chown postgres: "$dir/pg"
	aloud "making a database"
	as_postgres "$bin/initdb" -D "$dir/pg/data" -U postgres -A trust --no-sync >"$dir/postgres.log"
	quiet
	as_postgres "$bin/postgres" -D "$dir/pg/data" -c listen_addresses= -c "unix_socket_directories=$dir/pg" -c fsync=off >>"$dir/postgres.log" 2>&1 &
	server=$!
	export PGHOST="$dir/pg" PGUSER=postgres PGDATABASE=postgres
	until_true psql -qAtc 'select 1'
}

start_etcd() {
	aloud "building etcd"
	CGO_ENABLED=0 go build -C "$peers/etcd" -o "$dir/" go.etcd.io/etcd/etcdctl/v3 go.etcd.io/etcd/server/v3
	quiet
	port=$((20000 + $$ % 10000))
	while :; do # until a port is free
		url=http://127.0.0.1:$port peer=http://127.0.0.1:$((port + 1))
		"$dir/server" --data-dir "$dir/data" --listen-client-urls "$url" --advertise-client-urls "$url" \
			--listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" >"$dir/etcd.log" 2>&1 &
		server=$!
		export ETCDCTL_ENDPOINTS="$url"
		until_true answered_or_ended
		! kill -0 "$server" 2>/dev/null || return 0
		rm -rf "$dir/data"
		port=$((port + 2))
	done
}

answered_or_ended() { ! kill -0 "$server" || "$dir/etcdctl" endpoint health; }

start_restic() {
	export RESTIC_REPOSITORY="$dir/restic" RESTIC_PASSWORD=torture RESTIC_CACHE_DIR="$dir/cache"
	restic init --quiet
}

# torture FLAG…: the flags below come before those of the command line, which override them.
torture() {
	printf '\n=== %s\n' "$name"
	# shellcheck disable=SC2086
	"$dir/judge" --clients 4 --rounds 2 "$@" $more
}
more=$(printf ' %s' "$@") # flags have no spaces

case $name in
flock) torture --lease 3s --with "flock $dir/lock {}" --shared-with "flock -s $dir/lock {}" ;;
flock-o) torture --lease 3s --with "flock -o $dir/lock {}" ;;
mkdir) torture --lease 3s --with "sh -c 'mkdir $dir/lock || exit 75; trap \"rmdir $dir/lock\" EXIT; {}'" --clean "rm -rf $dir/lock" ;;
redis)
	start_redis
	torture --lease 3s --with "sh $peers/redis.sh torture 3 {}" --clean "$REDISCLI del torture"
	;;
postgres)
	start_postgres
	torture --lease 3s --with "sh $peers/postgres.sh exclusive {}" --shared-with "sh $peers/postgres.sh shared {}"
	;;
etcd)
	start_etcd
	torture --lease 5s --with "$dir/etcdctl lock --ttl 5 torture {}"
	;;
restic)
	start_restic
	torture --lease 10s --with "sh $peers/restic.sh exclusive {}" --shared-with "sh $peers/restic.sh shared {}" --clean "restic unlock --quiet --remove-all"
	;;
tower-fleet)
	mkdir "$dir/locks"
	torture --lease 6s --with "bash $peers/tower-fleet.sh $dir/locks 6 {}" --clean "sh -c 'rm -rf $dir/locks/*'"
	;;
cloudstic)
	build cloudstic ./e2e/peers/cloudstic
	mkdir "$dir/repo"
	torture --rounds 1 --lease 60s --with "$dir/cloudstic exclusive $dir/repo {}" --shared-with "$dir/cloudstic shared $dir/repo {}" --clean "rm -rf $dir/repo/index"
	;;
repolock)
	if [ -z "${REPOLOCK:-}" ]; then
		build repolock ./cmd/repolock
		REPOLOCK=$dir/repolock
	fi
	mkdir "$dir/repo"
	torture --lease 10s --with "$REPOLOCK -r $dir/repo -q run --exclusive --operation torture --ttl 10s -- {}" \
		--shared-with "$REPOLOCK -r $dir/repo -q run --shared --operation torture --ttl 10s -- {}" --clean "rm -rf $dir/repo/index"
	;;
esac
