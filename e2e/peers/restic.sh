#!/bin/sh
# restic.sh MODE COMMAND…: run a command while restic holds its lock. restic has no command for
# that, so the command runs in the middle of a real one, which waits for a pipe:
#
#   shared     restic backup --stdin, whose data ends when the command has ended
#   exclusive  restic key passwd, whose new password, the old one, ends then
#
# restic finds the repository by its own environment; RESTIC_PASSWORD is the password.
mode=$1
shift
work=$(mktemp -d)
pipe=$work/pipe
mkfifo "$pipe"
trap '' PIPE
(
	case $mode in
	shared) restic backup --quiet --stdin <"$pipe" ;;
	exclusive) restic key passwd --quiet --new-password-file "$pipe" ;;
	esac
	echo $? >"$work/code"
	: <>"$pipe" # lets the script go on if it still waits
) &
exec 3>"$pipe" # opens when restic does, or has ended
in=yes
if [ "$mode" = shared ]; then
	# restic has its lock when it reads more than a pipe holds.
	head -c 200000 /dev/zero >&3 2>/dev/null || in=no
fi
[ "$mode" = shared ] || printf '%s' "$RESTIC_PASSWORD" >&3 2>/dev/null || in=no
[ ! -e "$work/code" ] || in=no
code=75
if [ "$in" = yes ]; then
	"$@" # has the pipe, too: if this script is killed, restic waits for the command
	code=$?
fi
exec 3>&-
wait
rm -rf "$work"
exit "$code"
