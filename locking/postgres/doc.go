// Package postgres holds session-level advisory locks of PostgreSQL:
//
//	select pg_try_advisory_lock(hashtext(KEY)::bigint)
//
// Any program that takes that lock, in the same database, excludes ours and is excluded.
//
// # The lock
//
// The lock belongs to a session of the server, so that each lock has a connection of its own,
// which does nothing else. It ends with the session: at Release, when our process ends, when the
// server ends or is restarted, and when an administrator ends the session. It has no ttl of its
// own. The ttl of TryLock is how long the server waits for a peer that is silent: it sets the
// server's TCP timeouts for the session, so that a holder whose machine has vanished loses the
// lock after the ttl at the earliest, and soon after it.
//
// Renew asks the session whether it still holds the lock. Watch notices sooner that the session
// has ended.
//
// hashtext has 32 bits: two keys in 4 thousand million have the same hash, and are one lock. The
// lock is of one database of one server. A standby doesn't know it.
//
// # What ends a session while the holder runs on
//
// The server can be killed or restarted, a failover can leave it behind, an administrator can
// end the session. The lock is free at once then. Watch closes its channel when the end of the
// connection arrives, which takes as long as a packet does. If it doesn't arrive, because the
// network is cut too, the holder notices at its deadline: Renew isn't answered.
//
// # Poolers
//
// Behind a pooler that lends a session for a transaction (pgbouncer with pool_mode=transaction)
// the lock would belong to a session that other clients use. The server announces a number for
// the session when it begins, and a pooler announces its own: TryLock returns ErrUnfit if it
// isn't the number of the session in which statements run. Target.SessionPooler declares that the
// pooler lends a session for the whole of a connection. TryLock believes that unless a second
// connection shows that it isn't so, and each Renew looks whether the session is the same.
package postgres
