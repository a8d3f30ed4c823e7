package replock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

const (
	theirConfig = `{"version":1,"created":"2026-03-07T09:00:00Z","encrypted":true}`
	ofRestic    = "index/0f0e0d0c0b0a09080706050403020100f0e0d0c0b0a09080706050403020100f"
)

// TestWhoseRepository: a Locker finds out whether a repository is Cloudstic's. If it can't, or if the repository is
// empty, it doesn't know.
func TestWhoseRepository(t *testing.T) {
	for name, c := range map[string]struct {
		objects map[string]string
		fails   string // the key of a request that fails
		prefix  string
		want    Beside
	}{
		"empty":                  {want: BesideUnknown},
		"locks":                  {map[string]string{"index/lock.shared/20260307T090000.012345678Z-00000000000000000000000000000000": "x", "index/locks/n/lock.exclusive": "x", "index/lock-fence": "x"}, "", "", BesideUnknown},
		"strays":                 {map[string]string{"index/.DS_Store": "x", "index/@eaDir/x": "x", "photos/1.jpg": "x"}, "", "", BesideNobody},
		"restic":                 {map[string]string{"config": "\x8f\x01", ofRestic: "x", "data/00/x": "x"}, "", "", BesideNobody},
		"restic without config":  {map[string]string{ofRestic: "x", "data/00/x": "x"}, "", "", BesideNobody},
		"borg":                   {map[string]string{"config": "[repository]\nversion = 1", "index.5": "x"}, "", "", BesideNobody},
		"large config":           {map[string]string{"config": strings.Repeat("{", 1<<20)}, "", "", BesideNobody},
		"kopia":                  {map[string]string{"kopia.repository": "{}", "xn0_1": "x"}, "", "", BesideNobody},
		"files":                  {map[string]string{"a/b": "x"}, "", "", BesideNobody},
		"a new one of Cloudstic": {map[string]string{"config": theirConfig, "keys/password": "x"}, "", "", BesideCloudstic},
		"Cloudstic":              {map[string]string{"config": theirConfig, "index/packs": "x", "packs/x": "x"}, "", "", BesideCloudstic},
		"without a config":       {map[string]string{"index/latest": "x", "packs/x": "x"}, "", "", BesideCloudstic},
		"below a folder":         {map[string]string{"a/config": theirConfig}, "", "a/index/", BesideCloudstic},
		"config not readable":    {map[string]string{"config": "x", "data/00/x": "x"}, "config", "", BesideUnknown},
		"index not listed":       {map[string]string{"data/00/x": "x"}, "index/", "", BesideUnknown},
		"root not listed":        {map[string]string{"data/00/x": "x"}, "", "", BesideUnknown},
	} {
		sub(t, name, memory.Options{}, func(t *testing.T, w *world) {
			for key, body := range c.objects {
				w.put(key, []byte(body))
			}
			m := w.machine(func(o *Options) { o.Beside, o.Prefix = BesideUnknown, c.prefix })
			m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if c.fails != "" && r.Key == c.fails || name == "root not listed" && r.Op == "list" && r.Key == "" {
					return store.ErrPermission
				}
				return nil
			})
			m.takes(t, Shared)
			equal(t, "beside", m.Beside(), c.want)
		})
	}
}

// TestBesideCosts: beside Cloudstic an acquire takes two round trips and a request more, and as long again for each
// leftover. In another repository it takes none more, and the inquiry's requests only once.
func TestBesideCosts(t *testing.T) {
	theirs := map[string]string{"config": theirConfig, "index/packs": "x"}
	for _, c := range []struct {
		name      string
		objects   map[string]string
		leftovers int
		beside    Beside
		mode      Mode
		first     cost
		again     cost
	}{
		{"restic", map[string]string{"config": "\x8f\x01", ofRestic: "x"}, 0, BesideUnknown, Shared, cost{2, 3}, cost{2, 2}},
		{"restic", map[string]string{"config": "\x8f\x01", ofRestic: "x"}, 0, BesideUnknown, Exclusive, cost{2, 4}, cost{2, 3}},
		{"rclone", map[string]string{"photos/1.jpg": "x"}, 0, BesideUnknown, Shared, cost{2, 5}, cost{2, 2}},
		{"rclone", map[string]string{"photos/1.jpg": "x"}, 0, BesideUnknown, Exclusive, cost{2, 6}, cost{2, 3}},
		{"nobody", theirs, 0, BesideNobody, Exclusive, cost{2, 3}, cost{2, 3}},
		{"cloudstic", theirs, 0, BesideUnknown, Shared, cost{4, 4}, cost{4, 3}},
		{"cloudstic", theirs, 0, BesideUnknown, Exclusive, cost{4, 5}, cost{4, 4}},
		{"cloudstic", theirs, 0, BesideCloudstic, Shared, cost{4, 3}, cost{4, 3}},
		{"cloudstic", theirs, 1, BesideCloudstic, Shared, cost{5, 3}, cost{5, 3}},
		{"empty", nil, 0, BesideUnknown, Shared, cost{4, 6}, cost{4, 6}},
		{"empty", nil, 0, BesideUnknown, Exclusive, cost{4, 7}, cost{4, 7}},
	} {
		sub(t, fmt.Sprint(c.name, ", ", c.mode, ", ", c.leftovers), memory.Options{}, func(t *testing.T, w *world) {
			for key, body := range c.objects {
				w.put(key, []byte(body))
			}
			w.leftovers(c.leftovers)
			m := w.machine(func(o *Options) { o.Beside = c.beside })
			for _, want := range []cost{c.first, c.again} {
				var k *Lock
				m.costs(t, "acquire", want, func() { k = m.takes(t, c.mode) })
				mustRelease(t, k)
			}
		})
	}
}

// TestWindowIsBounded: however many leftovers there are, and on however slow a store, an acquire ends.
func TestWindowIsBounded(t *testing.T) {
	for _, ttl := range []time.Duration{MinTTL, DefaultTTL} {
		do(t, func(t *testing.T, w *world) {
			w.leftovers(9)
			m := w.machine(func(o *Options) { o.Beside, o.TTL = BesideCloudstic, ttl })
			m.hooks.Before(on("put", "", func(hookstore.Request) { time.Sleep(time.Second) }))
			start := time.Now()
			m.takes(t, Shared)
			took(t, start, time.Second+min(mostWindow, ttl/6), time.Second+min(mostWindow, ttl/6)+time.Millisecond)
		})
	}
}

// TestWindowOutlastsAContendedKey: MinIO answers within a millisecond, and lets the second of two puts under one key wait
// for up to 50 ms, twice. An original client that has looked just before our put, and whose own put waits so, is seen.
func TestWindowOutlastsAContendedKey(t *testing.T) {
	bothModes(t, memory.Options{}, func(t *testing.T, w *world, mode Mode) {
		m := w.machine(func(o *Options) { o.Beside = BesideCloudstic })
		key := map[Mode]string{Shared: "index/lock.shared/", Exclusive: pointer}[mode]
		m.hooks.Before(inTurn(slow("", "", time.Millisecond), first("put", key, func(hookstore.Request) error {
			time.AfterFunc(105*time.Millisecond, func() { w.put(pointer, foreign(time.Now().Add(time.Minute), false)) })
			return nil
		})))
		m.refused(t, mode)
	})
}

// TestMetOriginal: a lock of an original client shows that there are such clients, whatever the Locker was told.
func TestMetOriginal(t *testing.T) {
	for name, c := range map[string]struct {
		key  string
		body []byte
		mode Mode
		want Beside
	}{
		"pointer":         {pointer, foreign(time.Unix(0, 0), false), Shared, BesideCloudstic},
		"shared":          {"index/lock.shared/2026-03-07T09:00:00Z", foreign(time.Unix(0, 0), true), Shared, BesideCloudstic},
		"encrypted":       {"index/lock.shared/20260307T090000.012345678Z-00000000000000000000000000000000", []byte{1, 2}, Exclusive, BesideCloudstic},
		"one of our name": {"index/lock.shared/20260307T090000.012345678Z-00000000000000000000000000000000", foreign(time.Unix(0, 0), true), Shared, BesideNobody},
	} {
		sub(t, name, memory.Options{}, func(t *testing.T, w *world) {
			w.put(c.key, c.body)
			time.Sleep(time.Hour)
			m := w.machine()
			k, err := m.lock(t.Context(), c.mode, "x")
			if err == nil {
				mustRelease(t, k)
			}
			equal(t, "beside", m.Beside(), c.want)
		})
	}
}

// TestMetDuringTheInquiry: a lock of an original client that is seen during the inquiry counts more than the inquiry's
// result. A person can have put another program's repository around Cloudstic's locks.
func TestMetDuringTheInquiry(t *testing.T) {
	bubble(t, memory.Options{}, func(t *testing.T, w *world) {
		w.put("config", []byte("\x8f"))
		w.put("index/lock.shared/2026-03-07T09:00:00Z", foreign(time.Now().Add(time.Hour), true))
		m := w.machine(func(o *Options) { o.Beside = BesideUnknown })
		m.hooks.Before(when("get", "config", func(context.Context, hookstore.Request) error { time.Sleep(3 * time.Second); return nil }))
		k := m.takes(t, Shared)
		time.Sleep(5 * time.Second)
		equal(t, "beside", m.Beside(), BesideCloudstic)
		mustRelease(t, k)
	})
}

// TestNamedLockIsOurs: for a lock with a name nothing is asked, and nothing is waited for.
func TestNamedLockIsOurs(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		m := w.machine(func(o *Options) { o.Beside, o.Name = BesideUnknown, "index" })
		m.costs(t, "acquire", cost{2, 3}, func() { m.takes(t, Exclusive) })
	})
	for b := BesideUnknown; b <= BesideCloudstic; b++ {
		parsed, ok := ParseBeside(b.String())
		assert.That(t, ok && parsed == b, "%v: %v", b, parsed)
	}
	assert.That(t, assert.Err(New(memory.New(memory.Options{}), Options{Beside: 3})) != nil, "Beside: 3 is accepted")
}
