#!/bin/sh
# Starts the SFTP servers that this machine has, one after another, and prints a row for each: its version, what repolock
# doctor says, how many locks contending processes acquired in SECONDS, and how many overlapped.
#
#   sh e2e/servers/sftp.sh [SECONDS [SERVER…]]     20 s and all servers by default
#
# The servers are Debian's, and make programs installs them. rclone-new is built as e2e/servers/rclone/go.mod pins it,
# once, into REPOLOCK_E2E_CACHE, by default ~/.cache/repolock-e2e. sftpgo is no package of Debian: it is tried if it is
# in PATH. dropbear and mysecureshell take users from /etc/passwd alone, so they get a mount namespace with another one,
# which needs root. All listen on 127.0.0.1, and end with this script. repolock speaks to each by ssh.
#
# It ends with 1 if a lock overlaps, if a server that is expected to hold locks doesn't, or if one that can't hold them is
# called fit.
set -eu

seconds=${1:-20}
[ $# = 0 ] || shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/common.sh"

python=/usr/bin/python3 # Debian's, which has Debian's modules
[ -x "$python" ] || python=python3
need ssh ssh-keygen jq

cache=${REPOLOCK_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/repolock-e2e}
tmp=$(mktemp -d /tmp/repolock-sftp.XXXXXX)
pid=
stop() {
	[ -z "$pid" ] || kill "$pid" 2>/dev/null || true
	[ -z "$pid" ] || wait "$pid" 2>/dev/null || true
	pid=
}
end() {
	quiet
	for worker in ${workers-}; do kill "$worker" 2>/dev/null || true; done
	stop
	rm -rf "$tmp"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

user=$(id -un)
group=$(id -gn)
aloud "building repolock"
go build -C "$root" -o "$tmp/repolock" ./cmd/repolock
quiet
for key in host user; do ssh-keygen -q -t ed25519 -N '' -f "$tmp/$key"; done
ssh-keygen -q -t rsa -N '' -m PEM -f "$tmp/rsa"
ssh-keygen -e -f "$tmp/user.pub" >"$tmp/rfc4716"
mkdir -p "$tmp/home/.ssh"
cp "$tmp/user.pub" "$tmp/home/.ssh/authorized_keys"
chmod 700 "$tmp" "$tmp/home" "$tmp/home/.ssh"
chmod 600 "$tmp/home/.ssh/authorized_keys"
export XDG_CONFIG_HOME="$tmp/config" XDG_DATA_HOME="$tmp/data" XDG_STATE_HOME="$tmp/state"
unset REPOLOCK_REPO REPOLOCK_NAME

# sshd CONFIG… writes the configuration of an OpenSSH server.
sshd_config() {
	cat <<END
ListenAddress 127.0.0.1
Port $port
HostKey $tmp/host
AuthorizedKeysFile $tmp/user.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
MaxStartups 100
MaxSessions 100
$*
END
}

# apart PROGRAM… runs a program for which the user's home is $tmp/home.
apart() {
	[ "$(id -u)" = 0 ] || return 1
	awk -F : -v OFS=: -v user="$user" -v home="$tmp/home" '$1 == user { $6 = home; $7 = "/bin/sh" } 1' /etc/passwd >"$tmp/passwd"
	cat >"$tmp/mysecureshell" <<END
<Default>
	Home $tmp/home
	StayAtHome true
	VirtualChroot true
	LimitConnection 100
	LimitConnectionByUser 100
	LimitConnectionByIP 100
	DefaultRights 0640 0750
</Default>
END
	# shellcheck disable=SC2016
	unshare --mount sh -c 'mount --bind "$0/passwd" /etc/passwd && { ! [ -e /etc/ssh/sftp_config ] || mount --bind "$0/mysecureshell" /etc/ssh/sftp_config; } && exec "$@"' "$tmp" "$@"
}

# serve SERVER runs a server in the foreground. Its user's directory is $dir on this machine.
serve() {
	case $1 in
	openssh)
		[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
		sshd_config "Subsystem sftp internal-sftp" >"$tmp/conf"
		exec "$(command -v sshd)" -D -e -f "$tmp/conf"
		;;
	proftpd)
		printf '%s:x:%s:%s::%s:/bin/sh\n' "$user" "$(id -u)" "$(id -g)" "$tmp" >"$tmp/proftpd.passwd"
		chmod 600 "$tmp/proftpd.passwd"
		cat >"$tmp/conf" <<END
LoadModule mod_sftp.c
ServerType standalone
ServerName servers
DefaultAddress 127.0.0.1
Port $port
User $user
Group $group
RootLogin on
RequireValidShell off
UseFtpUsers off
AuthOrder mod_auth_file.c
AuthUserFile $tmp/proftpd.passwd
PidFile $tmp/proftpd.pid
ScoreboardFile $tmp/proftpd.scoreboard
DelayEngine off
WtmpLog off
TransferLog none
SystemLog $tmp/proftpd.log
SFTPEngine on
SFTPHostKey $tmp/host
SFTPAuthMethods publickey
SFTPAuthorizedUserKeys file:$tmp/rfc4716
AllowOverwrite on
AllowStoreRestart on
END
		exec proftpd -n -q -c "$tmp/conf"
		;;
	dropbear)
		[ -e "$tmp/dropbear.key" ] || dropbearkey -t ed25519 -f "$tmp/dropbear.key"
		apart dropbear -F -E -s -p "127.0.0.1:$port" -r "$tmp/dropbear.key" -P "$tmp/dropbear.pid"
		;;
	mysecureshell)
		[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
		sshd_config "Subsystem sftp /usr/bin/mysecureshell -c sftp-server" >"$tmp/conf"
		apart "$(command -v sshd)" -D -e -f "$tmp/conf"
		;;
	asyncssh) exec "$python" "$here/asyncssh_server.py" "$port" "$tmp/host" "$tmp/user.pub" ;;
	paramiko) exec "$python" "$here/paramiko_server.py" "$port" "$tmp/rsa" "$tmp/user.pub" / ;;
	paramiko-rename) exec "$python" "$here/paramiko_server.py" "$port" "$tmp/rsa" "$tmp/user.pub" / rename ;;
	rclone) exec rclone serve sftp --config /dev/null --addr "127.0.0.1:$port" --key "$tmp/rsa" --authorized-keys "$tmp/user.pub" --dir-cache-time 0s "$dir" ;;
	rclone-new) exec "$tmp/rclone.bin" serve sftp --config /dev/null --addr "127.0.0.1:$port" --key "$tmp/rsa" --authorized-keys "$tmp/user.pub" --dir-cache-time 0s "$dir" ;;
	sftpgo) exec sftpgo portable --directory "$dir" --sftpd-port "$port" --username "$user" --public-key "$(cat "$tmp/user.pub")" --permissions '*' --log-file-path '' ;;
	esac
}

# version SERVER prints the version that the program itself reports, or that its package has.
version() {
	case $1 in
	openssh) ssh -V 2>&1 | sed 's/^OpenSSH_\([^ ,]*\).*/\1/' ;;
	proftpd) proftpd -v 2>&1 | sed 's/.*Version //' ;;
	dropbear) dropbear -V 2>&1 | sed 's/^Dropbear v//' ;;
	mysecureshell) mysecureshell --version 2>&1 | sed -n 's/.*version *//p' | head -n 1 ;;
	asyncssh | paramiko | paramiko-rename) "$python" -c "import ${1%-rename} as m; print(m.__version__)" 2>/dev/null ;;
	rclone) rclone version | sed -n '1s/.* v//p' ;;
	rclone-new) "$tmp/rclone.bin" version | sed -n '1s/.* v//p' ;;
	sftpgo) sftpgo --version | sed 's/.* //' ;;
	esac
}

# missing SERVER prints why a server can't be tried, if it can't.
missing() {
	case $1 in
	openssh) command -v sshd >/dev/null || echo "sshd isn't installed" ;;
	asyncssh | paramiko | paramiko-rename) "$python" -c "import ${1%-rename}" 2>/dev/null || echo "python3-${1%-rename} isn't installed" ;;
	rclone-new)
		new=$cache/rclone-$({ cat "$here/rclone/main.go" "$here/rclone/go.mod" "$here/rclone/go.sum" && go version; } | cksum | tr ' ' -)
		[ -x "$new" ] || {
			aloud "building rclone"
			mkdir -p "$cache"
			pinned=$(awk '$1 == "github.com/rclone/rclone" || $2 == "github.com/rclone/rclone" { print $NF }' "$here/rclone/go.mod")
			CGO_ENABLED=0 go build -C "$here/rclone" -trimpath -ldflags="-s -w -X github.com/rclone/rclone/fs.Version=$pinned" -o "$new.$$" . >&2
			mv "$new.$$" "$new"
		}
		ln -sf "$new" "$tmp/rclone.bin"
		;;
	dropbear | mysecureshell)
		command -v "$1" >/dev/null || { echo "$1 isn't installed" && return; }
		[ "$(id -u)" = 0 ] || echo "only root can give it a user"
		;;
	*) command -v "$1" >/dev/null || echo "$1 isn't installed" ;;
	esac
}

# Each server has a directory of its own, which is in the home of mysecureshell's user and at the root of others.
at() {
	gently=no
	case $1 in
	mysecureshell) dir=$tmp/home/repo path=repo options= ;;
	rclone | rclone-new) dir=$tmp/$1 path=/ options='&listings=fresh' gently=yes ;;
	sftpgo) dir=$tmp/$1 path=/ options= ;;
	asyncssh | paramiko-rename) dir=$tmp/$1 path=/$tmp/$1 options= gently=yes ;; # these are one slow process for all connections
	*) dir=$tmp/$1 path=/$tmp/$1 options= ;;
	esac
	mkdir -p "$dir"
}

# expected SERVER reports whether its row is as expected. No lock may overlap. rclone answers late, or not at all, if many
# requests come at once, so doctor can end early there, and only two processes contend. The servers that have no way to
# replace a lock in one step must be refused.
expected() {
	case $1 in
	mysecureshell | paramiko | sftpgo) [ "$fitness" != fit ] && [ "$acquired" = 0 ] ;;
	rclone | rclone-new) [ "$overlaps" = 0 ] && [ "$acquired" -gt 0 ] ;;
	*) [ "$overlaps" = 0 ] && [ "$acquired" -gt 0 ] && case $fitness in fit | unknown) ;; *) false ;; esac ;; # a busy machine can end doctor early
	esac
}

listens() { "$python" -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1).close()' "$port" 2>/dev/null; }

port=$((20000 + $$ % 10000))
bad=0
row() { printf '%-10s  %-16s  %-26s  %-7s  %12s  %8s\n' "$@"; }

# start SERVER starts a server on a free port, and waits until it listens.
start() {
	port=$((port + 1))
	while listens; do port=$((port + 1)); done
	(serve "$1") >"$tmp/$1.log" 2>&1 </dev/null &
	pid=$!
	for _ in $(seq 150); do
		! listens || break
		sleep 0.1
	done
	listens || {
		cat "$tmp/$1.log" >&2
		die "$1 doesn't answer"
	}
}

# url sets the URL of the server's directory.
url() {
	command="ssh -F none -i $tmp/user -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -p $port $user@127.0.0.1 -s sftp"
	url="sftp://$user@127.0.0.1:$port/$path?command=$(echo "$command" | sed 's/%/%25/g; s/ /%20/g; s/+/%2B/g')$options"
}

# examine runs doctor.
examine() {
	timeout 180 "$tmp/repolock" -r "$url" --json doctor >"$tmp/doctor.out" 2>"$tmp/doctor.json" || true
	fitness=$(jq -rs 'map(.verdict.fitness // empty) | last // "refused"' "$tmp/doctor.out" "$tmp/doctor.json" 2>&1) || fitness=failed
}

# contend lets two processes acquire the exclusive lock again and again. Each makes a folder while it holds the lock, and
# finds one if the other holds it too.
contend() {
	: >"$tmp/held"
	: >"$tmp/torture.log"
	over=$(($(date +%s) + seconds))
	for _ in 1 2; do
		while [ "$(date +%s)" -lt "$over" ]; do
			# shellcheck disable=SC2016
			timeout 90 "$tmp/repolock" -q -r "$url" prune --wait 60s -- \
				sh -c 'if mkdir "$0"; then sleep 0.1; rmdir "$0"; echo held; else echo overlap; fi' "$tmp/folder" >>"$tmp/held" 2>>"$tmp/torture.log" || true
		done &
		workers="$workers $!"
	done
	# shellcheck disable=SC2086
	wait $workers
	workers=
	acquired=$(grep -c . "$tmp/held") || true
	overlaps=$(grep -c overlap "$tmp/held") || true
}
workers=

# try SERVER prints the row of a server. The server is another process for torture, because one that hung for doctor
# would still hang.
try() {
	why=$(missing "$1")
	[ -z "$why" ] || {
		row "$today" "$1" "$why" "-" "-" "-"
		return
	}
	at "$1"
	start "$1"
	url
	aloud "at $1"
	examine
	case $fitness,$1 in unknown,rclone*) ;; unknown,*) examine ;; esac # a busy machine can end it early
	stop
	start "$1"
	url
	if [ "$gently" = yes ]; then contend; else torture "$url"; fi
	quiet
	row "$today" "$1" "$(version "$1")" "$fitness" "$acquired" "$overlaps"
	left=$(find "$dir" -maxdepth 1 -name '.repolock-*' | wc -l)
	[ "$left" = 0 ] || echo "            $left temporary files are left in its root"
	jq -rs 'last | .checks[]? | select(.result == "fail") | "            " + .name + ": " + .detail' "$tmp/doctor.out" "$tmp/doctor.json" 2>/dev/null | head -n 1
	jq -rs 'last | .summary // empty | "            " + .' "$tmp/doctor.json" 2>/dev/null || true
	if ! expected "$1"; then
		bad=1
		echo "            this isn't as expected:" >&2
		cat "$tmp/doctor.json" "$tmp/torture.log" "$tmp/$1.log" | cut -c1-400 | tail -n 20 >&2
	fi
	stop
}

[ $# -gt 0 ] || set -- openssh proftpd dropbear asyncssh rclone rclone-new paramiko-rename paramiko mysecureshell sftpgo
row date server version doctor acquisitions overlaps
for server; do try "$server"; done
exit "$bad"
