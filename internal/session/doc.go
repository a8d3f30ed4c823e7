// Package session holds a lock while work is done: around one command, or for a script
// that asks a keeper. It decides what happens when the lock can't be acquired and when it
// is lost.
//
// It holds any Lock that a Locker acquires. Repository acquires those of package replock.
package session
