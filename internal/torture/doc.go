// Package torture makes real processes contend for one lock for a while, kills and stops
// them, and lets package judge decide whether the lock held. It knows neither locks nor
// stores: its caller passes the commands that take a lock, and the objects that they protect.
// It writes only below one prefix, which it deletes at the end.
//
// A Trial does the same for any lock that wraps a command. Its children protect no objects.
// They write to one log, and the trial inflicts each fault on a process that is known to hold
// the lock.
package torture
