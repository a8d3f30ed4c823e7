package lockingtest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/locking"
)

// oneWinner has all clients try at once, round by round. The winner holds the lock until all
// have tried.
func oneWinner(f *fixture) {
	clients := f.clients()
	without := 0
	for round := range f.Rounds {
		won := make([]locking.Handle, len(clients))
		var winners atomic.Int32
		begin := make(chan struct{})
		var all sync.WaitGroup
		for i, c := range clients {
			all.Go(func() {
				<-begin
				h, ok, err := c.TryLock(f.Context(), f.key, long)
				if err != nil {
					f.Errorf("round %d: contention is an error: %v", round, err)
				}
				if ok {
					winners.Add(1)
					won[i] = h
				}
			})
		}
		close(begin)
		f.returns(all.Wait)
		if n := winners.Load(); n > 1 {
			f.Errorf("round %d has %d winners", round, n)
		} else if n == 0 {
			without++
		}
		for i, h := range won {
			if h != (locking.Handle{}) {
				f.release(clients[i], h)
			}
		}
		if f.Failed() {
			return
		}
	}
	if without > f.Rounds/2 {
		f.Errorf("%d of %d rounds have no winner", without, f.Rounds)
	}
}

// neverTwo has all clients acquire and release without a break, so that attempts meet
// releases.
func neverTwo(f *fixture) {
	var inside, rounds atomic.Int32
	one := func(c *client) bool {
		h, ok, err := c.TryLock(f.Context(), f.key, long)
		if err != nil {
			f.Errorf("contention is an error: %v", err)
			return false
		}
		if !ok {
			f.rest()
			return true
		}
		if n := inside.Add(1); n != 1 {
			f.Errorf("round %d: %d holders", rounds.Load(), n)
		}
		dawdle()
		if err := c.Renew(f.Context(), h); err != nil {
			f.Errorf("round %d: the holder's renew: %v", rounds.Load(), err)
		}
		rounds.Add(1)
		inside.Add(-1)
		if err := c.Release(f.Context(), h); err != nil {
			f.Errorf("the holder's release: %v", err)
		}
		return true
	}
	var all sync.WaitGroup
	for _, c := range f.clients() {
		all.Go(func() {
			for last, since := int32(-1), time.Now(); rounds.Load() < int32(f.Rounds) && !f.Failed(); {
				if now := rounds.Load(); now != last {
					last, since = now, time.Now()
				} else if time.Since(since) > f.Limit {
					f.Errorf("no more rounds after %d", last)
				}
				if !one(c) {
					return
				}
			}
		})
	}
	all.Wait()
}

func (f *fixture) clients() []*client {
	clients := []*client{f.a, f.b}
	for len(clients) < f.Clients {
		if len(clients)%2 == 0 {
			clients = append(clients, f.client(f.New))
		} else {
			clients = append(clients, f.other())
		}
	}
	return clients
}
