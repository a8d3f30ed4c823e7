// Package replock keeps the lock of a backup repository in the repository
// itself: any number of shared locks, or one exclusive lock, on any object store
// that package store describes.
//
//	locker, err := replock.New(st, replock.Options{})
//	err = locker.Do(ctx, replock.Exclusive, "prune", func(ctx context.Context) error {
//		return prune(ctx) // ctx ends if the lock is lost
//	})
//
// Shared and Exclusive return the lock itself, for work that is not one function.
//
// # Guarantees
//
// While the context of an exclusive lock lives, no other lock's does, and while
// a shared lock's lives no exclusive lock's does. This holds however requests
// are delayed, lost, answered twice or applied late, however wrong any clock is,
// and however long a process is stopped, as long as the store keeps one promise:
// a List that starts after a Put was answered shows that Put. It holds on stores
// that ignore conditional requests, since it relies on none.
//
// A context ends at the lock's deadline, 55/60 of the ttl after the last refresh
// was sent that was answered in time, on a clock that counts suspends. No other
// holder gets in before the whole ttl is over. A process that was stopped notices
// within half a second of going on. Only another process can prevent what it does
// in between, as the repolock command does.
//
// A holder that has died is in the way of others for its ttl and a few seconds.
// If its clock or theirs is wrong, they watch its lock for another ttl.
//
// A waiting exclusive acquirer (Wait) gets the lock before all later acquirers, as
// soon as the earlier holders have released theirs. A waiting shared acquirer gets
// its lock when no exclusive lock is held or waited for.
//
// In doubt a lock is held: a store that fails is an error, and a body that
// can't be understood is a lock until it is broken.
//
// # How it works
//
// An acquirer puts a flag, an object under a key that no other client ever writes,
// and then lists the flags of all others. Of two acquirers that conflict, at least
// one puts its flag before the other looks, and is seen.
//
// Acquiring a shared lock takes two round trips and two requests, an exclusive
// one two and three; the first one on an unknown server three and five; on a store
// without conditional puts four and four. A refresh is one round trip. None of it
// grows with the number of holders. A waiting acquirer sends one list request each 1
// to 10 s, and a holder one each 10 s.
//
// # Concurrency
//
// A Locker and a Lock can be used by several goroutines at once.
//
// # Caveats
//
// The lock is cooperative. Break ends a lock only at its holder's next look
// (Options.Look), and on a store whose If-Match can't be relied on a refresh that
// is under way puts a broken lock back.
//
// A machine that its hypervisor has paused for longer than the ttl doesn't know it
// when it goes on, because none of its clocks has counted the pause. Its holder finds
// out at its next look, and until then its work can run beside another holder.
//
// Clients that keep to the original protocol, Cloudstic's, are excluded as well
// as they exclude each other; see Lock.Resume for what they don't do.
//
// # Compatibility
//
// The keys and the five fields operation, holder, acquired_at, expires_at and
// is_shared are those of Cloudstic's repository locks. Their bodies are understood in
// plain JSON, zstd and gzip; an encrypted one is a lock for 60 s after its last
// change. Fields are only ever added.
package replock
