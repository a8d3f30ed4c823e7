package replock

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// strays are names of files that other programs keep in every folder: docs/evidence/protocol.md, Files of other
// programs.
var strays = []string{
	"._" + flagName, "._2026-03-07T09:00:00.123456789+01:00", ".DS_Store", ".DS_Store/x", ".nfs00000000017a4c2e00000001",
	".fuse_hidden0000001200000001", ".smbdeleteAAA1b2c", ".snapshot/hourly.0/" + flagName, ".Trash-1000/files/" + flagName,
	".~tmp~/" + flagName, "." + flagName + ".Xa81Qz", ".syncthing." + flagName + ".tmp", ".directory",
	"#recycle/" + flagName, "#snapshot/GMT-2026.03.07-09.00.00/" + flagName, "$RECYCLE.BIN/S-1-5-21/desktop.ini",
	"@eaDir/" + flagName + "@SynoEAStream", "@Recycle/" + flagName, "@tmp/x", "System Volume Information/IndexerVolumeGuid",
	"lost+found/#12345", "Thumbs.db", "ehthumbs.db", "desktop.ini", "Desktop.ini", "Icon\r", "laptop/.DS_Store", "laptop/@eaDir/x",
}

// flagName is the name of a flag of ours.
const flagName = "20260307T090000.012345678Z-8f14e45fceea167a5a36dedd4bea2543"

// strayBodies are what such a file can have in it: the header of an AppleDouble file, nothing, and a lock that has
// been replaced or deleted.
func strayBodies() map[string][]byte {
	return map[string][]byte{"AppleDouble": {0, 5, 0x16, 7, 0, 2, 0, 0}, "": nil, "a lock": foreign(time.Now(), true)}
}

// TestStraysAreNoLocks: a file of another program, below either folder of flags, refuses no lock, is never broken,
// and is named.
func TestStraysAreNoLocks(t *testing.T) {
	for what, body := range strayBodies() {
		for _, folder := range []string{"index/lock.shared/", "index/lock.intent/"} {
			sub(t, folder+" "+what, memory.Options{PageSize: 5}, func(t *testing.T, w *world) {
				var keys []string
				for _, name := range strays {
					keys = append(keys, folder+name)
					w.put(folder+name, body)
				}
				slices.Sort(keys)
				m := w.machine()
				for _, mode := range []Mode{Shared, Exclusive} {
					m.takes(t, mode).Release(t.Context())
					w.stores(keys...)
				}
				locks := 0
				ignored, err := m.Survey(t.Context(), func(some []Info) { locks += len(some) })
				assert.That(t, err == nil && locks == 0 && slices.Equal(ignored, keys), "%v: locks %v, ignored %q", err, locks, ignored)
				for _, opts := range []BreakOptions{{}, {Stale: true}, {Dead: true}} {
					m.breaks(t, opts, 0)
				}
				w.stores(keys...)
			})
		}
	}
}

// TestForbiddenFolders: a folder that this user can't read refuses no lock and ends none if its name is another program's.
// With any other name it fails each listing, and nothing is acquired. The store is a fake of a directory.
func TestForbiddenFolders(t *testing.T) {
	folders := map[string]bool{ // whether it is passed
		"laptop/": false, "lost/": false, "lost+found0/": false, "a/lost/": false, "2026-03-07T09:00:00Z/": false, flagName + "/": false, "": false,
		"Thumbs.db/": false, "../": false, "lost+found/": true, "Lost+Found/": true, "@eaDir/": true, "#recycle/": true, ".snapshot/": true, ".snapshot/hourly.0/": true,
		"laptop/@eaDir/": true, "lost+found/x/": true,
	}
	for folder, passed := range folders {
		for _, flags := range []string{"index/lock.shared/", "index/lock.intent/"} {
			sub(t, flags+folder, memory.Options{}, func(t *testing.T, w *world) {
				m := w.machine()
				m.store = store.Finite(forbidden{m.hooks, flags + folder})
				if !passed {
					for _, mode := range []Mode{Shared, Exclusive} {
						assert.Is(t, m.fails(t, mode, store.ErrPermission), store.ErrPermission)
					}
					_, err := m.Survey(t.Context(), func([]Info) {})
					assert.Is(t, err, store.ErrPermission)
					return
				}
				for _, mode := range []Mode{Shared, Exclusive} {
					k := m.takes(t, mode)
					time.Sleep(3 * time.Minute)
					lives(t, k)
					ignored, err := m.Survey(t.Context(), func([]Info) {})
					assert.That(t, err == nil && slices.Equal(ignored, []string{flags + folder}), "ignored %q, %v", ignored, err)
					held := w.machine().refused(t, Exclusive)
					equal(t, "held by", held.Holders[0].ID, k.ID())
					if mode == Exclusive { // the holder still sees a lock of another client
						w.put("index/lock.shared/laptop", foreign(time.Now(), true))
						ends(t, k, time.Minute)
						assert.That(t, whyLost(k) != nil, "not lost to another client's lock")
						continue
					}
					mustRelease(t, k)
				}
			})
		}
	}
	for _, folder := range []string{"index/", "index/lock.exclusive/lost+found/", "index/lock.other/lost+found/", "index/locks/lost+found/", "lost+found/"} {
		assert.That(t, !store.Skips(Skipping(t.Context(), DefaultPrefix), folder), "%s is skipped", folder)
	}
}

// forbidden is a store with a folder that this user can't read.
type forbidden struct {
	store.Store
	folder string
}

func (s forbidden) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	if err != nil || !strings.HasPrefix(s.folder, prefix) {
		return page, err
	}
	if !store.Skips(ctx, s.folder) {
		return store.Page{}, &store.Error{Op: "list", Key: prefix, Err: store.ErrPermission}
	}
	page.Objects = append(page.Objects, store.Skipped(s.folder))
	slices.SortFunc(page.Objects, func(a, b store.Object) int { return strings.Compare(a.Key, b.Key) })
	return page, nil
}

// TestStraysBesideLocks: a lock among files of other programs excludes as it does alone. Its waiter acquires in its
// turn, and a lost lock is resumed. The files come first in each listing, on pages of their own.
func TestStraysBesideLocks(t *testing.T) {
	conflicts(t, func(t *testing.T, w *world, first, second Mode) {
		w.strays("index/lock.shared/", "index/lock.intent/")
		before := w.keys()
		a, b := w.machine(), w.machine()
		k := a.takes(t, first)
		held := b.refused(t, second)
		assert.That(t, len(held.Holders) > 0 && held.Holders[0].ID == k.ID(), "held by %v", held)
		b.breaks(t, BreakOptions{Stale: true}, 0)
		lives(t, k)
		time.AfterFunc(3*time.Minute, func() { k.Release(t.Context()) })
		start := time.Now()
		waited := b.takes(t, second, WithWait(time.Hour))
		took(t, start, 3*time.Minute, 3*time.Minute+10*time.Second)
		b.outlives(t, waited)
		mustResume(t, waited)
		mustRelease(t, waited)
		w.stores(before...)

		k = a.takes(t, first)
		assert.Equal(t, len(b.breaks(t, BreakOptions{}, 1)[0].Keys), map[Mode]int{Shared: 1, Exclusive: 2}[first], "broken keys")
		endsForGood(t, k, DefaultLook+time.Second)
		w.stores(before...)
	})
}

// strays puts files of other programs.
func (w *world) strays(folders ...string) {
	w.t.Helper()
	for _, folder := range folders {
		for _, name := range strays {
			w.put(folder+name, []byte{0, 5, 0x16, 7})
		}
	}
}

// TestManyStrays: a listing whose first pages show only files of other programs misses no lock behind them, and a
// shared acquirer reads no page behind the exclusive locks.
func TestManyStrays(t *testing.T) {
	conflicts(t, func(t *testing.T, w *world, first, second Mode) {
		w.mem = memory.New(memory.Options{PageSize: 10})
		for i := range 95 {
			w.put(fmt.Sprintf("index/lock.intent/._%03d", i), nil)
			w.put(fmt.Sprintf("index/lock.shared/._%03d", i), nil)
		}
		a, b := w.machine(), w.machine()
		k := a.takes(t, first)
		b.refused(t, second)
		equal(t, "a lock", b.only(t).ID, k.ID())
		mustRelease(t, k)
		b.sent(t, between{})
		c := w.machine()
		mustRelease(t, c.takes(t, Shared))
		c.sent(t, between{"list": {10, 12}, "get": {0, 0}})
		assert.Equal(t, len(w.keys()), 190, "files of other programs")
	})
}

// TestEveryPossibleNameIsALock: whatever name another client gives its shared lock, in whatever notation of a time, a
// number or an id, the lock excludes an exclusive one. So does an encrypted one, and one of a future protocol that we
// can't read.
func TestEveryPossibleNameIsALock(t *testing.T) {
	for what, body := range map[string][]byte{
		"live": foreign(time.Now(), true), "encrypted": append([]byte{1}, make([]byte, 60)...), "future": []byte(`{"lock":{"v":2}}`),
	} {
		for _, name := range lockNames() {
			for _, folder := range []string{"index/lock.shared/", "index/lock.intent/"} {
				if folder == "index/lock.intent/" && strings.Contains(name, "/") {
					continue // no flag: a policy for shared locks lets its owner write it
				}
				sub(t, what+" "+folder+name, memory.Options{}, func(t *testing.T, w *world) {
					w.put(folder+name, body)
					m := w.machine()
					held := m.refused(t, Exclusive)
					equal(t, "held by", held.Holders[0].Key(), folder+name)
					equal(t, "status", m.only(t).Key(), folder+name)
				})
			}
		}
	}
}

// lockNames are names that a client can give a lock.
func lockNames() []string {
	at, id := nineOClock, []byte{0xfb, 0xef, 0xbe, 0, 0x10, 0x83, 0x10, 0x51, 0x87, 0x20, 0x92, 0x8b, 0x30, 0xd3, 0x8f, 0x41}
	names := []string{
		flagName, flagName + ".tmp", hex.EncodeToString(id), strings.ToUpper(hex.EncodeToString(id)),
		"6ba7b810-9dad-11d1-80b4-00c04fd430c8", "{6BA7B810-9DAD-11D1-80B4-00C04FD430C8}", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "--7vvgAQgxBRhyCSizDTj0E",
		"_-7vvgAQgxBRhyCSizDTj0E=", "+77vvgAQgxBRhyCSizDTj0E=", "77X34AAQ QMIFDBZASKFTBU4PIE", "x", "lock", "emptied", "laptop/4711", "laptop (pid 4711)", "backup@laptop", "laptop#4711",
		"user~1", "2026-0~1", "-5", "+002026-03-07T09:00:00Z", "1772874000.123456789", "Sat Mar  7 09:00:00 2026", "0", "lost+found", "eaDir", "@eaDir", "thumbs", "Thumbs.db.lock", "desktop.ini-4711",
		"recycle/x", "snapshot/x", "nfs0001", "a.DS_Store", "é", "2026-03-07T09\uf02200\uf02200Z", "%2026", "§", "q.s8h2k1.c9r", "ECRYPTFS_FNEK_ENCRYPTED.FWa", ",Kq-2",
	}
	for _, layout := range []string{
		time.RFC3339, time.RFC3339Nano, wire.WireTime, time.RFC1123Z, time.DateTime, "2006-01-02T15-04-05", "2006-01-02T15_04_05.000Z0700",
		"20060102T150405Z", "20060102150405", time.Kitchen, time.StampNano, "2006/01/02/150405",
	} {
		for _, zone := range []*time.Location{time.UTC, time.FixedZone("", 2*3600), time.FixedZone("", -9*3600-1800)} {
			names = append(names, at.In(zone).Format(layout), at.In(zone).Format(layout)+".tmp")
		}
	}
	for _, n := range []int64{at.Unix(), at.UnixMilli(), at.UnixNano(), -at.Unix()} {
		names = append(names, fmt.Sprint(n), fmt.Sprintf("%x", n), fmt.Sprintf("laptop-4711-%d", n))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// nineOClock has more digits than some notations.
var nineOClock = time.Date(2026, 3, 7, 9, 0, 0, 123456780, time.UTC)
