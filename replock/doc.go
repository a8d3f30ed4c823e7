// Package replock keeps the lock of a backup repository in the repository
// itself: any number of shared locks, or one exclusive lock, on any object store
// that package store describes.
//
//	locker, err := replock.New(st, replock.Options{})
//	err = locker.Do(ctx, replock.Exclusive, "prune", func(ctx context.Context) error {
//		return prune(ctx) // ctx ends if the lock is lost
//	})
//
// Shared and Exclusive return the lock itself, for what is no function.
//
// # Guarantees
//
// While the context of an exclusive lock lives, no other lock's does, and while
// a shared lock's lives no exclusive lock's does. This holds however requests
// are delayed, lost, answered twice or applied late, however wrong any clock is,
// and however long a process is stopped, as long as the store keeps one promise:
// a List that starts after a Put was answered shows that Put. It holds on stores
// that ignore conditional requests, since none is relied on for it.
//
// A context ends at the lock's deadline, 55/60 of the ttl after the last refresh
// that was answered in time was sent, on a clock that counts suspend; nobody
// else gets in before the whole ttl is over. A process that was stopped notices
// within half a second of going on: what it does in between is for somebody
// outside of it to prevent, as the repolock command does with a second process.
//
// A holder that is gone is in the way of others for its ttl and a few seconds.
// If its clock or theirs is wrong, they watch its lock for another ttl.
//
// Who waits for the exclusive lock (Wait) gets it before all who ask later, so that it
// comes when those are done who were there first. Who waits for a shared lock gets it
// when nobody holds the exclusive one or waits for it.
//
// In doubt a lock is held: a store that fails is an error, and a body that
// can't be understood is a lock until somebody breaks it.
//
// # How it works
//
// Whoever wants the lock puts a flag, an object under a key that nobody else
// ever writes, and then lists the flags of all others. Of two who conflict, at
// least one puts its flag before the other looks, and is seen. The functions are
// named after the steps: enter, raise, look, judge, reap, claim, withdraw, wait,
// refresh, watch, resume, release.
//
// Acquiring a shared lock takes two round trips and two requests, an exclusive
// one two and three; where the store has no conditional put, four and four. A
// refresh is one round trip. None of it grows with the number of holders. Who waits
// sends one list request each 1 to 10 s, and a holder one each 10 s.
//
// # Caveats
//
// The lock is cooperative. Break ends a lock only at its holder's next look
// (Options.Look), and on a store where If-Match can't be relied on a refresh that
// is under way puts a broken lock back.
//
// A machine that its hypervisor has paused for longer than the ttl doesn't know when
// it goes on, because none of its clocks has counted the pause. Its holder finds out
// at its next look, and until then what it protects may run beside another holder.
//
// Clients that keep to the original protocol, Cloudstic's, are excluded as well
// as they exclude each other; see Lock.Resume for what they don't do.
//
// # Compatibility
//
// The keys and the five fields operation, holder, acquired_at, expires_at and
// is_shared are those of Cloudstic's repository locks. Theirs are understood in
// plain JSON, zstd and gzip; an encrypted one is a lock for 60 s after its last
// change. Fields are only ever added.
package replock
