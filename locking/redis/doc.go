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
// The value has no room for the holder's name. Each SET and each renewal is followed, in the same
// packet, by a script that writes a note to the key repolock:holder:PREFIX+KEY if the token is
// still there. The note has the ttl of the lock and a hash of its token, so that Inspect
// recognizes the note of another lock. The note takes no part in the locking: its errors are
// ignored, and after a refusal no more notes are written.
//
// # Lost answers
//
// If SET isn't answered, or another holder has the lock, the token is looked up. If it is there,
// the lock is acquired. If the outcome stays unknown, the lock is taken down, for at most a second
// after the context of TryLock has ended. If that isn't answered either, the lock expires, and the
// error says so. A SET that the server executes later, because it was stopped, is recognized by
// the next TryLock of the same Backend, and is no other holder.
//
// # What it can't promise
//
// The server gives a lock twice if it forgets it: by a restart without persistence, a failover to
// a replica that hasn't received it, or an eviction. The holder notices at its next renewal.
// Examine looks for these. A majority of several servers (Redlock) isn't implemented.
package redis
