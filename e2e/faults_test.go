//go:build unix && minio

package e2e

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/replock"
)

// faults are those of a bad network and a bad store.
var faults = map[string]func(proxy.Request) proxy.Fault{
	"lost answers": chance(0.15, func() proxy.Fault { return proxy.Fault{LoseAnswer: true} }),
	"resets":       chance(0.2, func() proxy.Fault { return proxy.Fault{Reset: true} }),
	"truncated":    chance(0.15, func() proxy.Fault { return proxy.Fault{Truncate: true} }),
	"errors":       chance(0.2, func() proxy.Fault { return proxy.Fault{Status: 500, Code: "InternalError"} }),
	"conflicts":    onPuts(chance(0.4, func() proxy.Fault { return proxy.Fault{Status: 409, Code: "ConditionalRequestConflict"} })),
	"too many":     chance(0.2, func() proxy.Fault { return proxy.Fault{Status: 429, Code: "TooManyRequests"} }),
	// Longer than a client waits for an answer, so the request is applied after the client
	// gave up, or is applied without an answer.
	"delays": chance(0.1, func() proxy.Fault {
		if rand.IntN(2) == 0 {
			return proxy.Fault{Before: 5 * time.Second}
		}
		return proxy.Fault{After: 5 * time.Second}
	}),
	"late and again": chance(0.08, func() proxy.Fault {
		if rand.IntN(2) == 0 {
			return proxy.Fault{Late: rand.N(8 * time.Second)}
		}
		return proxy.Fault{Again: rand.N(8 * time.Second)}
	}),
	"storms": func(proxy.Request) proxy.Fault {
		if time.Now().Unix()%8 < 2 {
			return proxy.Throttled
		}
		return proxy.Fault{}
	},
}

// chance gives a share of all requests a fault.
func chance(p float64, fault func() proxy.Fault) func(proxy.Request) proxy.Fault {
	return func(proxy.Request) proxy.Fault {
		if rand.Float64() < p {
			return fault()
		}
		return proxy.Fault{}
	}
}

// onPuts limits a fault to puts.
func onPuts(decide func(proxy.Request) proxy.Fault) func(proxy.Request) proxy.Fault {
	return func(r proxy.Request) proxy.Fault {
		if r.Op == "put" {
			return decide(r)
		}
		return proxy.Fault{}
	}
}

// anyOf gives each request a chance of one of all faults.
func anyOf(r proxy.Request) proxy.Fault {
	decide := slices.Collect(maps.Values(faults))
	return decide[rand.IntN(len(decide))](r)
}

// TestFaults: whichever requests fail, no holder is in together with an exclusive one, the
// lock can still be acquired, and its remaining objects expire.
func TestFaults(t *testing.T) {
	// Beside no other test: others depend on time, and these keep the machine busy.
	for _, k := range kinds {
		for name, decide := range faults {
			t.Run(k.name+", "+name, func(t *testing.T) { badDay(t, k, decide) })
		}
		t.Run(k.name+", any of them", func(t *testing.T) { badDay(t, k, anyOf) })
	}
}

func badDay(t *testing.T, k kind, decide func(proxy.Request) proxy.Fault) {
	t.Parallel()
	at := k.on(k.shared(t))
	p := proxied(t, at, proxy.Behaviour{Decide: decide})
	r := newReferee(t)
	crowd(t, r, newLockers(t, 3, newLocker, at.through(p)), time.Now().Add(40*time.Second))
	log := p.Take()
	t.Logf("%v; %d requests", r, len(log))
	if r.grants[replock.Shared]+r.grants[replock.Exclusive] == 0 {
		t.Error("no client ever got in")
	}

	p.Settle()
	freesItself(t, at)
}

// freesItself checks that the lock is free once its holders are gone and no request is under
// way. Within a ttl its remaining objects no longer make a later acquirer fail.
func freesItself(t *testing.T, at place) {
	t.Helper()
	orphans, start := len(at.left()), time.Now()
	l := newLocker(t, at.repo())
	var k *replock.Lock
	for {
		began := time.Now()
		var err error
		if k, err = l.Exclusive(t.Context(), "prune"); err == nil {
			break
		}
		if errors.Is(err, replock.ErrHeld) && began.Sub(start) > ttl+5*time.Second || time.Since(start) > hang {
			t.Fatalf("after %v: %v; there are %q", began.Sub(start), err, at.left())
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("%d objects were left, and out of the way after %v", orphans, time.Since(start).Round(100*time.Millisecond))
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if left := at.left(); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}
