package real

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
)

// row is what the steps have found, for the table of docs/evidence/stores.md.
type row struct {
	name  string
	build struct{ Version, Go, System string }
	ways  int // URLs of the repository

	lines     int // of the contract
	diagnosis struct {
		Store, Server string
		Plan          struct {
			Exclusive int `json:"exclusive_round_trips"`
		}
		Verdict struct{ Fitness string }
	}
	tortured         time.Duration
	torture          struct{ Acquisitions int }
	rounds           int
	acquire, release times
}

// String is the row. It shows no URL: that has names of buckets, machines and users.
func (r *row) String() string {
	name := r.name
	if name == "" {
		name = strings.TrimSpace(r.diagnosis.Store + " " + r.diagnosis.Server)
	}
	by := map[bool]string{true: " by two ways in turn"}[r.ways > 1]
	return fmt.Sprintf("| %s | `make real` on %s, repolock %s, %s, %s. The contract: all %d lines. Doctor: %s, a first exclusive lock takes %d round trips. "+
		"Torture for %v: %d locks, none wrong. %d rounds of locks%s: an exclusive lock is acquired in %v, released in %v (medians) |",
		name, time.Now().UTC().Format(time.DateOnly), r.build.Version, r.build.Go, r.build.System, r.lines,
		r.diagnosis.Verdict.Fitness, r.diagnosis.Plan.Exclusive, r.tortured, r.torture.Acquisitions,
		r.rounds, by, r.acquire.median(), r.release.median())
}

// times are durations of one kind of call.
type times []time.Duration

// took calls a function, and keeps how long that took.
func (d *times) took(call func() *replock.Lock) *replock.Lock {
	began := time.Now()
	k := call()
	*d = append(*d, time.Since(began))
	return k
}

func (d times) median() time.Duration {
	slices.Sort(d)
	return d[len(d)/2].Round(time.Millisecond / 10)
}
