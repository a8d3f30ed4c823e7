package memory

import (
	"time"

	"github.com/repolock/repolock/store"
)

// Options are the abilities of a store. The zero value has all of them.
type Options struct {
	// Now returns the time of the store's clock. Nil means time.Now.
	Now func() time.Time
	// Precision is the unit to which mod times are rounded down. For S3 it is a second. Zero keeps them exact. Page.Now
	// isn't rounded.
	Precision time.Duration
	// PageSize is the number of objects in a full page. Zero means 1000.
	PageSize int
	// IfAbsent and IfMatch are how the store treats the conditions of a Put.
	IfAbsent, IfMatch Condition
	// IfMatchCreates makes a Put with PutOptions.IfMatch write if there is no object, whatever the ETag. MinIO before
	// September 2025 does that (minio/minio#21526). Then the store declares at most store.Claimed for IfMatch.
	IfMatchCreates bool
	// Markers makes a Put with PutOptions.IfAbsent fail for a key whose object was deleted, as on a server that treats
	// a delete marker as an object (versitygw). Then the store declares at most store.Claimed for IfAbsent.
	Markers bool
	// Versions makes a Put check PutOptions.Replaces, as a backend with versions must.
	Versions bool
	// NoBatch makes the store refuse to delete many objects in one request.
	NoBatch bool
	// NoTime omits Page.Now, and the ModTime that Put returns. List and Get still return ModTime.
	NoTime bool
	// UntimedPuts omits the ModTime that Put returns, and not Page.Now, as on S3.
	UntimedPuts bool
	// NoStoreClock declares that clients' clocks stamp ModTime, as on a network file
	// system.
	NoStoreClock bool
	// MachineClock declares that Now is the wall clock of the clients' machine, as on a local
	// disk.
	MachineClock bool
	// PutCreates declares that a Put might create the bucket.
	PutCreates bool
}

// Condition is how the store treats one of the conditions of a Put.
type Condition int

const (
	// Kept: the store declares store.Kept, and honours the condition.
	Kept Condition = iota
	// Claimed: the store declares store.Claimed, and honours the condition.
	Claimed
	// Ignored: the store declares store.Claimed, but ignores the condition, as some S3
	// servers do.
	Ignored
	// Lacked: the store declares store.Unsupported, and refuses the Put.
	Lacked
)

// ifAbsent returns how the store declares PutOptions.IfAbsent.
func (o Options) ifAbsent() store.Condition {
	if o.Markers {
		return min(o.IfAbsent.declared(), store.Claimed)
	}
	return o.IfAbsent.declared()
}

// ifMatch returns how the store declares PutOptions.IfMatch.
func (o Options) ifMatch() store.Condition {
	if o.IfMatchCreates {
		return min(o.IfMatch.declared(), store.Claimed)
	}
	return o.IfMatch.declared()
}

func (c Condition) declared() store.Condition {
	switch c {
	case Kept:
		return store.Kept
	case Lacked:
		return store.Unsupported
	default:
		return store.Claimed
	}
}

// outcome returns the error of a Put whose condition is met or not, or nil.
func (c Condition) outcome(met bool) error {
	switch {
	case c == Lacked:
		return store.ErrConditionUnsupported
	case c == Ignored || met:
		return nil
	default:
		return store.ErrPrecondition
	}
}
