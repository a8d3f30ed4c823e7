package replock

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// large is a store whose objects have bodies of 60 KB, made when they are read.
type large struct{ *mem.Store }

func (s large) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	_, o, err := s.Store.Get(ctx, key, limit)
	b := body{ExpiresAt: "2026-01-01T00:00:00Z", IsShared: true, ID: key}
	long := strings.Repeat("x", 60_000)
	switch o.ETag[0] % 4 {
	case 0:
		b.Operation = long
	case 1:
		b.Holder = long
	case 2:
		b.Metadata = map[string]string{"k": long}
	default:
		return []byte(`{"is_shared":` + strings.Repeat("1", 60_000) + "}"), o, err
	}
	raw, _ := json.Marshal(b)
	return raw, o, err
}

// TestManyLargeLocks: Status and Break keep little of a lock in memory, however large its body
// is.
func TestManyLargeLocks(t *testing.T) {
	const n = 600
	s := large{mem.New(mem.Options{})}
	for i := range n {
		if _, err := s.Put(t.Context(), fmt.Sprintf("index/lock.shared/%04d", i), fmt.Append(nil, i), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	infos, err := l.Status(t.Context())
	broken, berr := l.Break(t.Context(), BreakOptions{DryRun: true})
	if kept := heap() - before; err != nil || berr != nil || len(infos) != n || len(broken) != n || kept > 2*(maxBodies+n*4<<10) {
		t.Errorf("%d and %d locks, %v, %v: %d KiB are kept", len(infos), len(broken), err, berr, kept>>10)
	}
	runtime.KeepAlive(infos)
	runtime.KeepAlive(broken)
}

// TestStatusAsOfEachPage: a lock is judged as of its listing, however long the following pages
// take, since it isn't watched meanwhile.
func TestStatusAsOfEachPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{PageSize: 1})
		k, err := w.machine(func(o *Options) { o.TTL = MinTTL }).Shared(t.Context(), "x")
		mustLock(t, k, err)
		for i := range 4 {
			w.put(fmt.Sprint("index/lock.shared/z", i), foreign(time.Now(), true))
		}
		m := w.machine()
		m.hooks.Before(func(context.Context, hookstore.Request) error { time.Sleep(7 * time.Second); return nil })
		infos, err := m.Status(t.Context())
		if err != nil || len(infos) != 5 || infos[0].ID != k.ID() || infos[0].Verdict != Live {
			t.Errorf("%v %v", infos, err)
		}
		k.Release(t.Context())
	})
}
