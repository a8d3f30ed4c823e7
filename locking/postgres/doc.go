// Package postgres holds session-level advisory locks of PostgreSQL:
//
//	select pg_try_advisory_lock(hashtext(KEY)::bigint)
//
// Any program that takes that lock, in the same database, excludes ours and is excluded.
//
// # The lock
//
// The lock belongs to a session of the server, so each lock has a connection of its own. The lock ends
// with the session: at Release, when our process ends, when the server ends or is restarted, and when
// an administrator ends the session. PostgreSQL has no ttl. Instead, the ttl of TryLock becomes the TCP
// timeout of the session at the server: the server frees the lock of a vanished machine soon after the
// ttl, and not before.
//
// Renew asks the session whether it still holds the lock. Watch notices sooner that the session
// has ended.
//
// hashtext has 32 bits: any two keys have the same hash, and so the same lock, with a chance of one in
// 4,294,967,296. The lock exists in one database of one server. A standby doesn't know it.
//
// # Loss
//
// A session can end while its holder runs on: the server is killed or restarted, a failover replaces
// it, or an administrator ends the session. Then the lock is free at once. Watch closes its channel
// when the end of the connection arrives, a packet later. If the network is cut too, the holder
// notices the loss at its deadline, because Renew isn't answered.
//
// # Poolers
//
// A pooler that lends a session for a transaction (pgbouncer with pool_mode=transaction) would lend the
// session with our lock to other clients. A server announces the pid of the session when it begins;
// a pooler announces a number of its own. So TryLock returns ErrUnfit if statements run in another
// session than the announced one. Target.SessionPooler declares that the pooler lends a session until
// its connection ends. TryLock then refuses only if a second connection disproves that, and each Renew
// checks that the session is still the same.
package postgres
