// Package storetest checks that a backend keeps the contract of store.Store.
//
// Every line of the contract is a subtest. What a backend declares itself to
// lack is checked to be lacking in the way that the contract says; nothing is
// skipped.
package storetest

import (
	"testing"
	"time"

	"github.com/repolock/repolock/store"
)

// Config says how to get the backend that is tested.
type Config struct {
	// New gives a store that is empty and used by nothing else.
	New func(t *testing.T) store.Store
	// Again gives another handle on the same objects, as another process has
	// one. If it is nil, the handle that New gave is used twice.
	Again func(t *testing.T, s store.Store) store.Store
	// Light has fewer rounds of what races, for another configuration of a
	// backend that is also checked in full.
	Light bool
	// Precision is what the backend rounds mod times down to.
	Precision time.Duration
}

// suite is the contract, line by line.
var suite = []struct {
	line string
	test func(*testing.T, *fixture)
}{
	{"put is read back", putIsReadBack},
	{"put overwrites", putOverwrites},
	{"put keeps no reference to the body", putCopies},
	{"put of an empty body", putEmpty},
	{"put of any bytes", putBinary},
	{"put of durable", putDurable},
	{"get gives too large beyond its limit", getLimit},
	{"get gives not found", getNotFound},
	{"delete removes", deleteRemoves},
	{"delete of nothing is no error", deleteIsIdempotent},
	{"etag changes with the body", etagChanges},
	{"mod time and now are one clock", oneClock},

	{"list of nothing is empty", listEmpty},
	{"list is in byte order", listOrder},
	{"list takes any prefix", listPrefix},
	{"list gives pages", listPages},
	{"list shows what get and put show", listAgrees},
	{"list shows every put of another handle", listAfterPut},
	{"list never misses what is overwritten", listUnderOverwrites},

	{"if absent", ifAbsent},
	{"if absent has one winner", ifAbsentRace},
	{"if match", ifMatch},
	{"if match writes nothing where there is nothing", ifMatchOfNothing},
	{"if match loses no increment", ifMatchIncrements},
	{"if match never revives what was deleted", ifMatchAgainstDelete},

	{"replaces is no condition that is met by halves", replaces},

	{"reads are never torn", noTornReads},
	{"bad keys are refused", badKeys},
	{"good keys are taken", goodKeys},
	{"an ended context is heeded", endedContext},
	{"errors name the operation and the key", errorsTell},
	{"properties never change", propertiesStay},
	{"everything at once", everythingAtOnce},
}

// Run checks the whole contract. Each subtest has a store of its own.
func Run(t *testing.T, c Config) {
	t.Helper()
	for _, line := range suite {
		t.Run(line.line, func(t *testing.T) {
			f := &fixture{Config: c, store: c.New(t)}
			f.other = f.store
			if c.Again != nil {
				f.other = c.Again(t, f.store)
			}
			line.test(t, f)
		})
	}
}
