//go:build unix && minio

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// TestNoConditions: on a server that ignores If-Match and If-None-Match and takes any put, two
// are never in at once.
func TestNoConditions(t *testing.T) {
	for _, k := range []kind{onS3, onMinIO} {
		for name, exclusive := range map[string]float64{"all exclusive": 1, "mixed": 0.2} {
			// One after the other, and beside no other test: they keep the machine busy.
			t.Run(k.name+", "+name, func(t *testing.T) { contend(t, k, exclusive) })
		}
	}
}

const (
	lanes        = 10 // repositories with rounds in parallel
	roundsOfLane = 10
	contenderN   = 8
)

// contend runs 100 rounds in which 8 contenders want the lock at once.
func contend(t *testing.T, k kind, exclusive float64) {
	var winners [contenderN + 1]atomic.Int32 // rounds by how many got in
	t.Run("lane", func(t *testing.T) {
		for lane := range lanes {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				at := k.on(k.shared(t))
				p := proxied(t, at, proxy.Behaviour{StripConditions: true, Sign: root})
				// In half of the lanes the clients stay, with their knowledge of the store; in
				// the other half each round has new ones.
				var clients []*replock.Locker
				for i := range roundsOfLane {
					if i == 0 || lane%2 == 0 {
						clients = newLockers(t, contenderN, newLasting, at.through(p))
					}
					winners[round(t, clients, exclusive)].Add(1)
				}
			})
		}
	})
	for n := range winners {
		if rounds := winners[n].Load(); rounds > 0 {
			t.Logf("%d rounds with %d winners", rounds, n)
		}
		if n > 1 && exclusive == 1 && winners[n].Load() > 0 {
			t.Errorf("%d exclusive locks were held at once", n)
		}
	}
	if winners[0].Load() > lanes*roundsOfLane/10 {
		t.Errorf("in %d rounds all lost for nothing", winners[0].Load())
	}
}

// round makes all clients try at once. Those that get in stay until all have tried. round
// returns their number.
func round(t *testing.T, clients []*replock.Locker, exclusive float64) int {
	r := newReferee(t)
	var tried, done sync.WaitGroup
	tried.Add(len(clients))
	start := make(chan struct{})
	for _, l := range clients {
		mode := replock.Shared
		if rand.Float64() < exclusive {
			mode = replock.Exclusive
		}
		done.Go(func() {
			<-start
			k, err := take(t.Context(), l, mode)
			if err == nil {
				r.enter(k)
			}
			tried.Done()
			tried.Wait()
			if err == nil {
				if k.Context().Err() != nil {
					t.Errorf("%s %s: lost within the round", k.Mode(), k.ID())
				}
				r.leave(k)
				if err := k.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	close(start)
	done.Wait()
	return r.grants[replock.Shared] + r.grants[replock.Exclusive]
}

// TestConditionsAreStripped: the server of TestNoConditions does ignore conditions.
func TestConditionsAreStripped(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{onS3, onMinIO} {
		at := k.on(k.shared(t))
		p := proxied(t, at, proxy.Behaviour{})
		s := openStore(t, at.through(p))
		for _, c := range []struct {
			strip bool
			want  error
		}{{false, store.ErrPrecondition}, {true, nil}} {
			p.Behave(proxy.Behaviour{StripConditions: c.strip, Sign: root})
			if _, err := s.Put(t.Context(), "index/x", []byte("1"), store.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, opts := range []store.PutOptions{{IfAbsent: true}, {IfMatch: "00000000000000000000000000000000"}} {
				if _, err := s.Put(t.Context(), "index/x", []byte("2"), opts); !errors.Is(err, c.want) {
					t.Errorf("%s, stripped %v, %+v: %v, want %v", k.name, c.strip, opts, err, c.want)
				}
			}
		}
	}
}

// takesAbsent is the difference between MinIO before September 2025, which e2e/minio.sh starts
// with this release, and later ones: the old one takes a put with If-Match on a missing key.
var takesAbsent = os.Getenv("REPOLOCK_E2E_RELEASE") == "2025-04"

// TestIfMatchOnAbsentKey: the server is of the age that the tests assume.
func TestIfMatchOnAbsentKey(t *testing.T) {
	t.Parallel()
	want := store.ErrPrecondition
	if takesAbsent {
		want = nil
	}
	for name, bucket := range miniotest.Buckets(t) {
		for _, url := range []string{bucket.S3("by-s3"), bucket.MinIO("by-minio")} {
			s, other := openStore(t, url), openStore(t, url)
			o, err := s.Put(t.Context(), "index/x", []byte("1"), store.PutOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := other.Delete(t.Context(), "index/x"); err != nil {
				t.Fatal(err)
			}
			for _, etag := range []string{o.ETag, "00000000000000000000000000000000"} {
				if _, err := s.Put(t.Context(), "index/x", []byte("2"), store.PutOptions{IfMatch: etag}); !errors.Is(err, want) {
					t.Errorf("%s, on a deleted object: %v, want %v", name, err, want)
				}
				if err := s.Delete(t.Context(), "index/x"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Put(t.Context(), "index/never", []byte("2"), store.PutOptions{IfMatch: o.ETag}); !errors.Is(err, want) {
				t.Errorf("%s, on what never was: %v, want %v", name, err, want)
			}
		}
	}
}
