package redis

import (
	goredis "github.com/redis/go-redis/v9"
)

// The scripts return one of these. An error of Redis that isn't about the key's type is returned
// as the error that it is: it says nothing about the lock.
const (
	absent  = 0 // there is no such key
	done    = 1
	foreign = 2 // another holder has the lock
)

// compare sets v to the value of the key. A key of another type is another holder's.
const compare = `local v = redis.pcall('GET', KEYS[1])
if type(v) == 'table' then
  if v.err and string.find(v.err, 'WRONGTYPE', 1, true) then return 2 end
  return v
end
if not v then return 0 end
`

var (
	// renewScript takes the token and the ttl in ms.
	renewScript = goredis.NewScript(compare + `if v ~= ARGV[1] then return 2 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)
	// releaseScript takes the token.
	releaseScript = goredis.NewScript(compare + `if v ~= ARGV[1] then return 2 end
return redis.call('DEL', KEYS[1])`)
	// breakScript takes the revision.
	breakScript = goredis.NewScript(compare + `if redis.sha1hex(v) ~= ARGV[1] then return 2 end
return redis.call('DEL', KEYS[1])`)
)

// What noteScript does with a note, instead of writing it.
const (
	dropNote = ""
	keepNote = "+" // for another ttl
)

// noteScript takes the lock, the note's key, the token, the note or what to do with it, and the
// ttl in ms.
const noteScript = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then return redis.call('DEL', KEYS[2]) end
if ARGV[2] == '+' then return redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1`
