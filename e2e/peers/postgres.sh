#!/bin/sh
# postgres.sh MODE COMMAND…: run a command under an advisory lock of the session of a psql, which
# waits for it. MODE is shared or exclusive. The command has no word that a shell changes. psql
# finds the server by its own environment.
suffix=
[ "$1" = exclusive ] || suffix=_shared
shift
exec psql -qAtX -v ON_ERROR_STOP=1 <<EOF
select pg_advisory_lock$suffix(42) \g /dev/null
\! $*
EOF
