// Package replock keeps the lock of a backup repository in the repository
// itself: any number of shared locks, or one exclusive lock, on any object store
// that package store describes.
//
//	locker, err := replock.New(st, replock.Options{})
//	err = locker.Do(ctx, replock.Exclusive, "prune", func(ctx context.Context) error {
//		return prune(ctx) // ctx ends if the lock is lost
//	})
//
// Shared and Exclusive return the lock itself, for work that is not one function. They wait for
// locks that conflict; TryShared and TryExclusive don't.
//
// # Guarantees
//
// While the context of an exclusive lock lives, the context of no other lock does. While the
// context of a shared lock lives, the context of no exclusive lock does. This holds however
// requests are delayed, lost, answered twice or applied late, however wrong a clock is, and
// however long a process is stopped. The store must keep one promise: a List that starts after a Put was answered shows
// that Put. It also holds on stores that ignore conditional requests, because it relies on none.
//
// A context ends at the lock's deadline: 55/60 of the ttl after the send of the last refresh that
// was answered in time, on a clock that counts suspends. No other acquirer takes the lock before
// the whole ttl is over. A process that was stopped notices the end within half a second after it
// continues. Until then only another process can stop its work, such as the guard of the repolock
// command.
//
// A holder that has died blocks others for its ttl and a few seconds. If its clock
// or theirs is wrong, they watch its lock for another ttl.
//
// A waiting exclusive acquirer acquires the lock before all later acquirers,
// as soon as the earlier holders have released theirs. A waiting shared acquirer
// acquires its lock when no exclusive lock is held or waited for.
//
// In doubt a lock is held: a failure of the store is an error, and a lock with an
// unreadable body counts as held until it is broken.
//
// # How it works
//
// An acquirer puts a flag, an object under a key that no other client ever writes,
// and then lists the flags of all others. Of two acquirers that conflict, at least
// one puts its flag before the other looks, and the other sees it.
//
// A shared lock is acquired in two round trips with two requests, an exclusive one in two with
// three. The first exclusive lock on an unknown server takes three round trips with five
// requests; on a store without conditional puts it takes four with four. A refresh is one round
// trip. The costs don't grow with the number of holders. A waiting acquirer sends one list
// request every 1 to 10 s, and further requests for single locks (WithWait). A holder sends one list
// request every 10 s (Options.Look).
//
// # Concurrency
//
// A Locker and a Lock can be used by several goroutines at once.
//
// # Caveats
//
// The lock is cooperative. Break ends a lock only at its holder's next look
// (Options.Look). On a store whose If-Match can't be relied on, a refresh that
// is under way puts a broken lock back.
//
// If a hypervisor has paused a machine for longer than the ttl, none of the machine's
// clocks has counted the pause. Its holder notices at its next look. Until then its
// work can run beside another holder.
//
// The clients of the original protocol, Cloudstic's, look before they write. In their repositories an acquire takes two
// round trips more, and in that time such a client has written (Options.Beside). A client that is much slower can still
// acquire beside our lock. Our lock is then lost within seconds. They acquire a lock without removing an expired one:
// see Lock.Resume.
//
// # Compatibility
//
// The keys and the five fields operation, holder, acquired_at, expires_at and
// is_shared are the same as in Cloudstic's repository locks. Bodies are read as plain JSON, zstd and gzip. A lock with
// an encrypted body counts as held for 60 s after its last change. Fields are only ever added.
package replock
