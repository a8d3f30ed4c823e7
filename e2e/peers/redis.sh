#!/bin/sh
# redis.sh KEY SECONDS COMMAND…: run a command under a key in Redis, as scripts do: SET NX with
# a time to live and a random value, and a deletion if the value is still there. It waits for
# nothing: if the key is there, it exits with 75. REDISCLI is the client, with its flags.
key=$1 ttl=$2
shift 2
token=$(od -An -N16 -tx8 /dev/urandom)
[ "$($REDISCLI set "$key" "$token" nx ex "$ttl")" = OK ] || exit 75
"$@"
code=$?
$REDISCLI eval 'if redis.call("get", KEYS[1]) == ARGV[1] then redis.call("del", KEYS[1]) end' 1 "$key" "$token" >/dev/null
exit $code
