#!/bin/sh
# Puts each of three front ends with TLS before an S3 server, and prints a row for each: what repolock doctor says, how
# many locks torture's processes acquired in SECONDS, and how many overlapped. Each front end rewrites Accept-Encoding,
# and so changes a header that S3 clients sign.
#
#   sh e2e/servers/fronts.sh [SECONDS]     20 by default
#
# The server is versitygw, as e2e/servers/versitygw/go.mod pins it. It is built once, into REPOLOCK_E2E_CACHE, by
# default ~/.cache/repolock-e2e. nginx, haproxy and caddy are Debian's; make programs installs them. All listen on
# 127.0.0.1, and end with this script. It ends with 1 if a front end is unfit or a lock overlaps.
set -eu

seconds=${1:-20}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/common.sh"

need nginx haproxy caddy jq openssl curl

cache=${REPOLOCK_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/repolock-e2e}
gateway=$cache/versitygw-$({ cat "$here/versitygw/go.mod" "$here/versitygw/go.sum" && go version; } | cksum | tr ' ' -)
tmp=$(mktemp -d /tmp/repolock-fronts.XXXXXX)
pids=
end() {
	quiet
	for pid in $pids; do kill "$pid" 2>/dev/null || true; done
	for pid in $pids; do wait "$pid" 2>/dev/null || true; done
	rm -rf "$tmp"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

aloud "building the server and repolock"
[ -x "$gateway" ] || {
	mkdir -p "$cache"
	CGO_ENABLED=0 go build -C "$here/versitygw" -trimpath -ldflags='-s -w' -o "$gateway.$$" github.com/versity/versitygw/cmd/versitygw
	mv "$gateway.$$" "$gateway"
}
go build -C "$root" -o "$tmp/repolock" ./cmd/repolock
quiet

# free prints a port of this machine on which no server listens.
port=$((20000 + $$ % 10000))
free() {
	port=$((port + 1))
	while curl -s -o "$tmp/none" "http://127.0.0.1:$port"; [ $? != 7 ]; do port=$((port + 1)); done
	echo "$port"
}

# start NAME COMMAND… starts a server, which writes to NAME.log.
start() {
	name=$1
	shift
	"$@" >"$tmp/$name.log" 2>&1 </dev/null &
	pids="$! $pids"
}

# until_up URL waits for an answer, whatever it is.
until_up() {
	for _ in $(seq 150); do
		curl -sk -o "$tmp/none" "$1" && return
		sleep 0.1
	done
	cat "$tmp"/*.log >&2
	die "$1 doesn't answer"
}

openssl req -x509 -newkey rsa:2048 -nodes -keyout "$tmp/key.pem" -out "$tmp/cert.pem" -days 2 -subj /CN=fronts \
	-addext subjectAltName=IP:127.0.0.1 2>"$tmp/none"
cat "$tmp/cert.pem" "$tmp/key.pem" >"$tmp/both.pem"
chmod 755 "$tmp"
mkdir -p "$tmp/store/bucket" "$tmp/home"

export AWS_ACCESS_KEY_ID=fronts AWS_SECRET_ACCESS_KEY=fronts-secret AWS_CA_BUNDLE="$tmp/cert.pem" HOME="$tmp/home"
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 XDG_CONFIG_HOME XDG_DATA_HOME REPOLOCK_REPO REPOLOCK_NAME
server=127.0.0.1:$(free)
ROOT_ACCESS_KEY=$AWS_ACCESS_KEY_ID ROOT_SECRET_KEY=$AWS_SECRET_ACCESS_KEY start versitygw "$gateway" -q --port "$server" posix "$tmp/store"
until_up "http://$server/"

nginx_at=127.0.0.1:$(free)
port=${nginx_at#*:}
cat >"$tmp/nginx.conf" <<END
daemon off; master_process off; pid nginx.pid; error_log stderr;
events {}
http {
	access_log off; gzip on; gzip_types *; gzip_proxied any;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
	server {
		listen $nginx_at ssl http2; ssl_certificate cert.pem; ssl_certificate_key key.pem;
		location / {
			proxy_pass http://$server;
			proxy_set_header Host \$http_host;
			proxy_set_header Accept-Encoding "";
		}
	}
}
END
start nginx nginx -p "$tmp" -c "$tmp/nginx.conf"

haproxy_at=127.0.0.1:$(free)
port=${haproxy_at#*:}
cat >"$tmp/haproxy.cfg" <<END
defaults
	mode http
	timeout connect 5s
	timeout client 60s
	timeout server 60s
frontend tls
	bind $haproxy_at ssl crt $tmp/both.pem alpn h2,http/1.1
	http-request set-header Accept-Encoding gzip
	option forwardfor
	default_backend s3
	compression algo gzip
	compression type application/xml application/json
backend s3
	server s3 $server
END
start haproxy haproxy -db -f "$tmp/haproxy.cfg"

caddy_at=127.0.0.1:$(free)
cat >"$tmp/Caddyfile" <<END
{
	admin off
	auto_https off
	default_sni 127.0.0.1
}
https://$caddy_at {
	bind 127.0.0.1
	tls $tmp/cert.pem $tmp/key.pem
	encode gzip
	reverse_proxy $server {
		header_up -Accept-Encoding
	}
}
END
start caddy caddy run --config "$tmp/Caddyfile" --adapter caddyfile

bad=0
# row NAME ADDRESS VERSION prints the row of a front end.
row() {
	until_up "https://$2/"
	url="s3://bucket/$1?endpoint=https://$2"
	"$tmp/repolock" -r "$url" --json doctor >"$tmp/doctor.out" 2>"$tmp/doctor.json" || true
	torture "$url"
	doctor=$(jq -rs 'last | .verdict.fitness // .error // "failed"' "$tmp/doctor.out" "$tmp/doctor.json" 2>&1) || doctor=failed
	printf '%-12s %-10s %-30s %-8s %12s %8s\n' "$today" "$1" "$3+versitygw-$version" "$doctor" "$acquired" "$overlaps"
	if [ "$doctor" != fit ] || [ "$acquired" = 0 ] || [ "$overlaps" != 0 ]; then
		cat "$tmp/doctor.json" "$tmp/torture.log" >&2
		bad=1
	fi
}
version=$(awk '$1 == "github.com/versity/versitygw" || $2 == "github.com/versity/versitygw" { print $NF == "indirect" ? $(NF - 2) : $NF }' "$here/versitygw/go.mod")
aloud "contending"
printf '%-12s %-10s %-30s %-8s %12s %8s\n' date server version doctor acquisitions overlaps
row nginx "$nginx_at" "$(nginx -v 2>&1 | sed 's/.*nginx.//')"
row haproxy "$haproxy_at" "$(haproxy -v | sed -n '1s/.*version \([0-9.]*\).*/\1/p')"
row caddy "$caddy_at" "$(caddy version | cut -d' ' -f1)"
exit "$bad"
