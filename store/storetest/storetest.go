// Package storetest checks that a backend keeps the contract of store.Store.
//
//	func TestContract(t *testing.T) {
//		storetest.Run(t, storetest.Config{
//			New: func(t *testing.T) store.Store { return newEmptyStore(t) },
//		})
//	}
//
// Each line of the contract is a subtest, and none is skipped: if a backend declares that it
// lacks a condition, the subtest checks that it refuses the condition as the contract says.
package storetest

import (
	"testing"
	"time"

	"github.com/repolock/repolock/store"
)

// Config has the backend under test.
type Config struct {
	// New returns an empty store that nothing else uses. It is called once for each
	// subtest.
	New func(t *testing.T) store.Store
	// Again returns another handle on the same objects, as another process would have
	// it. If it is nil, the tests use the handle of New twice.
	Again func(t *testing.T, s store.Store) store.Store
	// Light runs a tenth of the rounds of each race, as -short does, for a further
	// configuration of a backend that another test checks in full.
	Light bool
	// Precision is the unit to which the backend rounds mod times down.
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
	{"delete all deletes what it says", deleteAll},
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
	{"delete if match", deleteIfMatch},
	{"delete if match removes nothing newer", deleteIfMatchAgainstPut},

	{"replaces is either ignored or heeded", replaces},

	{"watch gives a hint of a deletion, or is unsupported", watchHints},

	{"reads are never torn", noTornReads},
	{"bad keys are refused", badKeys},
	{"good keys are taken", goodKeys},
	{"an ended context is heeded", endedContext},
	{"errors name the operation and the key", errorsTell},
	{"properties never change", propertiesStay},
	{"everything at once", everythingAtOnce},
}

// Run runs all subtests, each on a store of its own.
func Run(t *testing.T, c Config) {
	t.Helper()
	c.Light = c.Light || testing.Short()
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
