// Package judge decides whether real processes broke a lock. Each process logs when it was
// started, when its critical section began, each act in it, and its end; all of them read
// one clock. That is a history of operations on a readers-writer lock, and porcupine decides
// whether they can have happened in some order. A second check, independent of porcupine,
// names the critical sections that overlap; the two must agree. A third check is what the
// processes saw in the store: objects that appeared or vanished beside an exclusive holder
// that neither wrote nor deleted them.
//
// A log that can't be understood, or a search that takes too long, never counts as "no
// violation": the result is unknown.
package judge
