package mem

import (
	"time"

	"github.com/repolock/repolock/store"
)

// Options say what kind of store it is. The zero value is a good one.
type Options struct {
	// Now is the store's own clock; time.Now if nil.
	Now func() time.Time
	// Precision is what mod times are rounded down to (S3: a second); exact if
	// zero. Page.Now isn't rounded.
	Precision time.Duration
	// PageSize is how many objects a List gives at most; 1000 if zero.
	PageSize int
	// IfAbsent and IfMatch say what becomes of a conditional Put.
	IfAbsent, IfMatch Condition
	// IfMatchCreates has a Put with PutOptions.IfMatch write where there is no
	// object, whatever the ETag, as MinIO does before September 2025
	// (minio/minio#21526). Such a store doesn't keep IfMatch: Kept is declared
	// as store.Claimed.
	IfMatchCreates bool
	// Markers has a Put with PutOptions.IfAbsent refused for a key whose object was
	// deleted, as a server does that takes a delete marker for an object (versitygw).
	Markers bool
	// Versions has a Put heed PutOptions.Replaces, as a backend that keeps
	// versions must.
	Versions bool
	// NoTime leaves out the time of every answer: Page.Now, and the ModTime
	// that a Put returns. List and Get still tell ModTime.
	NoTime bool
	// NoStoreClock leaves it open whose clock stamps ModTime, as on a network
	// file system.
	NoStoreClock bool
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.PageSize <= 0 {
		o.PageSize = 1000
	}
	return o
}

// Condition is what the store does with a kind of conditional Put.
type Condition int

const (
	// Kept is declared as store.Kept, and kept.
	Kept Condition = iota
	// Claimed is declared as store.Claimed, and kept.
	Claimed
	// Ignored is declared as store.Claimed, and the body is written whatever
	// the condition says, as some S3 endpoints do.
	Ignored
	// Lacked is declared as store.Unsupported, and refused.
	Lacked
)

// ifMatch is what the store declares of PutOptions.IfMatch.
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

// judge says what a Put is answered whose condition is met, or isn't.
func (c Condition) judge(met bool) error {
	switch {
	case c == Lacked:
		return store.ErrConditionUnsupported
	case c == Ignored || met:
		return nil
	default:
		return store.ErrPrecondition
	}
}
