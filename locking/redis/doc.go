// Package redis keeps locks in one Redis server, in the form that the Redlock page of Redis and
// many programs use, so that they and repolock exclude each other.
//
// # The form
//
//   - A lock is the key PREFIX+KEY. Its value is the holder's token, and nothing else.
//   - SET key token NX PX ttl acquires it.
//   - A script that compares the token and calls PEXPIRE renews it.
//   - A script that compares the token and calls DEL releases it.
//
// The ttl is in whole milliseconds, rounded up. The server's clock counts it.
//
// # The note
//
// The value is the token alone, so the holder's name is in a note at the key
// repolock:holder:PREFIX+KEY. A script writes it, in the same packet as SET and each renewal, if the key
// of the lock has the token. The note has the ttl of the lock and a hash of the token, by which Inspect
// recognizes the note of an earlier lock. The lock doesn't depend on the note: its errors are ignored,
// and after a refusal no more notes are written.
//
// # Lost answers
//
// If SET isn't answered, TryLock looks for its token. If the token is there, the lock is acquired.
// Otherwise TryLock removes what SET might have stored, or might store later, for at most a second
// after its context has ended. If that isn't answered either, the lock expires, and the error says so.
// A stopped server can execute SET later. The next TryLock of the same Backend recognizes that token,
// and removes the lock.
//
// # Limits
//
// The server grants a lock twice if it forgets the first one: by a restart without persistence, a
// failover to a replica that hasn't received it, or an eviction. The first holder notices that at its
// next renewal. Examine finds settings that make this possible. Redlock, the lock on a majority of
// several servers, isn't implemented.
package redis
