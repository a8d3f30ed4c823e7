// Package torture makes real processes contend for one lock for a while, kills and stops
// them, and lets package judge decide whether the lock held. It knows neither locks nor
// stores: its caller passes the commands that take a lock, and the objects that they protect.
//
// It writes only below one prefix, which it deletes at the end.
package torture
