// Package history judges what real processes did under a lock. Each of them has
// written down when it was started, when its critical section began, each act in it,
// and its end; all read one clock. That is a history of operations on a
// readers-writer lock, and porcupine tells whether there is an order in which they
// may have happened. A second check, which knows nothing of porcupine, names who was
// in together with whom; the two must agree. A third is what the processes saw in the
// store: objects that came or went beside an exclusive holder, which isn't its doing.
//
// In doubt there is no verdict: a log that can't be understood, or a search that
// takes too long, is never "no violation".
package history
