// Package torture makes real processes contend for one lock for a while, kills and stops
// them, and lets package judge decide whether the lock held. It knows nothing of locks: its
// caller gives it the commands that take one.
//
// It writes into the store only below one prefix, which it deletes at the end.
package torture
