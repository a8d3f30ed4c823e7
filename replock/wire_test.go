package replock

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/docblocks"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store/memory"
)

// foreign is a body as another client writes it, with local times in nanoseconds.
func foreign(at time.Time, shared bool) []byte {
	local := at.In(time.FixedZone("", 2*3600))
	kind := ""
	if shared {
		kind = `,"is_shared":true`
	}
	return fmt.Appendf(nil, `{"acquired_at":%q,"expires_at":%q,"holder":"laptop (pid 4711)","operation":"backup"%s}`,
		local.Format(time.RFC3339Nano), local.Add(time.Minute).Format(time.RFC3339Nano), kind)
}

func zstdOf(raw []byte) []byte {
	w, _ := zstd.NewWriter(nil)
	defer w.Close()
	return w.EncodeAll(raw, nil)
}

func gzipOf(raw []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(raw)
	w.Close()
	return b.Bytes()
}

// TestForeignLocks: the locks of other clients, under any key, keep ours out while they live, and not longer.
func TestForeignLocks(t *testing.T) {
	const shared = "index/lock.shared/2026-03-07T09:00:00Z"
	plain := func(raw []byte) []byte { return raw }
	encrypted := func([]byte) []byte { return fmt.Append(nil, "\x01 this is ciphertext", time.Now()) } // another nonce
	for name, c := range map[string]struct {
		key       string
		code      func([]byte) []byte
		encrypted bool
	}{
		"plain":                       {"index/lock.shared/2026-03-07T09:00:00.123456789+02:00", plain, false},
		"nonce":                       {"index/lock.shared/00112233445566778899aabbccddeeff", plain, false},
		"zstd":                        {shared, zstdOf, false},
		"gzip":                        {shared, gzipOf, false},
		"tmp":                         {shared + ".tmp", plain, false},
		"encrypted":                   {shared, encrypted, true},
		"exclusive without is_shared": {pointer, plain, false},
		"exclusive zstd":              {pointer, zstdOf, false},
		"exclusive encrypted":         {pointer, encrypted, true},
	} {
		sub(t, name, memory.Options{}, func(t *testing.T, w *world) {
			m := w.machine()
			write := func() { w.put(c.key, c.code(foreign(time.Now(), c.key != pointer))) }
			write()
			for range 11 {
				held := m.refused(t, Exclusive)
				if !c.encrypted && held.Holders[0].Holder != "laptop (pid 4711)" {
					t.Fatalf("holder: %v", held)
				}
				if c.key == pointer {
					m.refused(t, Shared)
				} else {
					m.takes(t, Shared).Release(t.Context())
				}
				time.Sleep(29 * time.Second)
				write()
			}
			start, limit := time.Now(), 65*time.Second
			if c.encrypted {
				limit = 70*time.Second + time.Minute // no second witness: watched
			}
			m.untilFree(t, Exclusive, time.Second)
			took(t, start, time.Minute, limit)
			w.empty()
		})
	}
}

// TestUnreadable: a body that can't be parsed is held until break-lock, however old.
func TestUnreadable(t *testing.T) {
	bad := map[string][]byte{
		"blank":             []byte(" "),
		"truncated":         []byte(`{"operation":"backup","holder":"h (pid 1)","acquired_at":"2026-`),
		"null":              []byte("null"),
		"object":            []byte("{}"),
		"trailing":          append(foreign(time.Now(), true), "x"...),
		"not a time":        []byte(`{"operation":"b","holder":"h","acquired_at":"x","expires_at":"tomorrow"}`),
		"bad refreshed_at":  []byte(`{"operation":"b","holder":"h","expires_at":"2026-03-07T09:00:00Z","refreshed_at":"x"}`),
		"negative ttl":      []byte(`{"operation":"b","holder":"h","expires_at":"2026-03-07T09:00:00Z","ttl_seconds":-1}`),
		"ttl is a text":     []byte(`{"operation":"b","holder":"h","expires_at":"2026-03-07T09:00:00Z","ttl_seconds":"60"}`),
		"NUL":               make([]byte, 100),
		"large":             bytes.Repeat([]byte("x"), 10<<20),
		"large JSON":        []byte(`{"expires_at":"2026-03-07T09:00:00Z","operation":"` + strings.Repeat("x", 1<<20) + `"}`),
		"zstd bomb":         zstdOf(bytes.Repeat([]byte(" "), 10<<20)),
		"gzip bomb":         gzipOf(bytes.Repeat([]byte(" "), 10<<20)),
		"truncated zstd":    zstdOf(foreign(time.Now(), true))[:20],
		"truncated gzip":    gzipOf(foreign(time.Now(), true))[:20],
		"zstd of nothing":   zstdOf(nil),
		"unknown magic":     {0x02, 0x03},
		"deep":              []byte(strings.Repeat("[", 60000)),
		"control in syntax": []byte("{\x1b[2J}"),
	}
	for name, raw := range bad {
		for _, key := range []string{pointer, "index/lock.intent/x", "index/lock.shared/x"} {
			sub(t, name+" "+key, memory.Options{}, func(t *testing.T, w *world) {
				w.put(key, raw)
				m := w.machine()
				for range 2 {
					held := m.refused(t, Exclusive)
					assert.That(t, held.Holders[0].Verdict == Unreadable && strings.Contains(held.Error(), "break-lock"), "%v", held)
					s := held.Error()
					assert.That(t, !strings.ContainsAny(s, "\n\x1b\x00") && len(s) <= 1000, "the error is not one clean line: %q", s)
					time.Sleep(24 * time.Hour)
				}
				m.breaks(t, BreakOptions{Stale: true}, 0)
				m.isOdd(t, Exclusive, key)
			})
		}
	}
}

// TestStrangeBodies: a strange body that can be parsed is judged by the clocks, and expires by itself.
func TestStrangeBodies(t *testing.T) {
	for name, raw := range map[string]string{
		"year 9999":       `{"operation":"b","holder":"h","acquired_at":"9999-12-31T23:59:59Z","expires_at":"9999-12-31T23:59:59Z"}`,
		"year 0":          `{"operation":"b","holder":"h","acquired_at":"0000-01-01T00:00:00Z","expires_at":"0000-01-01T00:00:00Z"}`,
		"no acquired_at":  `{"operation":"b","holder":"h","expires_at":"2026-03-07T09:00:00Z"}`,
		"control":         `{"operation":"\u001b[2J\u0000\n","holder":"\u202ereversed\r\n","expires_at":"2026-03-07T09:00:00Z"}`,
		"unknown fields":  `{"operation":"b","holder":"h","expires_at":"2026-03-07T09:00:00Z","new":{"a":[1]}}`,
		"upper case keys": `{"OPERATION":"b","HOLDER":"h","EXPIRES_AT":"2026-03-07T09:00:00Z"}`,
	} {
		sub(t, name, memory.Options{}, func(t *testing.T, w *world) {
			w.put("index/lock.shared/x", []byte(raw))
			m := w.machine()
			err := m.refused(t, Exclusive)
			assert.That(t, !strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x202e }),
				"control characters reach the terminal: %q", err)
			time.Sleep(65 * time.Second)
			start := time.Now()
			m.takes(t, Exclusive)
			took(t, start, 0, 62*time.Second)
		})
	}
}

// TestFarDates: a lock that is dated in a far year, by a wrong clock or by hand, counts as dated in that direction.
// The store's pages have no time, so this machine's clock alone measures the lock.
func TestFarDates(t *testing.T) {
	for at, past := range map[string]bool{"9999-12-31T23:59:59Z": false, "0000-01-01T00:00:00Z": true, "9999-12-31T23:59:59-01:00": false, "0000-01-01T00:00:00+01:00": true} {
		sub(t, at, memory.Options{NoTime: true}, func(t *testing.T, w *world) {
			w.put("index/lock.shared/x", fmt.Appendf(nil, `{"operation":"b","holder":"h","expires_at":%q,"is_shared":true}`, at))
			infos, err := w.machine().Status(t.Context())
			assert.OK(t, err)
			i := infos[0]
			assert.That(t, i.Age > 0 == past && i.Left < 0 == past && (i.Verdict == Doubtful) == past, "%v: age %v, %v left", i, i.Age, i.Left)
		})
	}
}

// TestExampleBody: the body in docs/evidence/protocol.md has the form of ours, under the key that is there.
func TestExampleBody(t *testing.T) {
	page, err := docblocks.Read("../docs/evidence/protocol.md")
	assert.OK(t, err)
	var want bytes.Buffer
	assert.OK(t, json.Compact(&want, []byte(strings.Join(page.Fenced["json"], ""))))
	l, err := wire.Decode(want.Bytes())
	assert.OK(t, err)
	assert.Equal(t, string(l.Encode()), want.String())
	w := &world{t: t, mem: memory.New(memory.Options{})}
	assert.Equal(t, l.Expires.Sub(l.Refreshed), w.machine().times.Deadline+wire.ForeignTTL, "expires")
	key := wire.Keys{Prefix: DefaultPrefix}.Intent(l.Acquired, l.ID)
	assert.That(t, slices.Contains(page.Inline, key), "no key %s", key)
}

// TestMetadataFits: a body with the largest metadata and names stays below the limit of readers.
func TestMetadataFits(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		b := wire.Body{Operation: strings.Repeat("\x00", wire.MaxOperation), Metadata: map[string]string{"k": strings.Repeat("\x00", wire.MaxMetadata-1)}}
		w.machine().stamp(&b, verdict.StoreTime{}, 0)
		raw := b.Encode()
		assert.That(t, len(raw) <= wire.MaxBody, "a body of %d bytes can be written, and only %d are read", len(raw), wire.MaxBody)
		assert.OK(t, assert.Err(wire.Decode(raw)))
		_, err := w.machine().TryShared(t.Context(), strings.Repeat("x", wire.MaxOperation+1))
		assert.That(t, err != nil, "an operation's name that is too long is taken")
		_, err = New(w.mem, Options{Metadata: map[string]string{"k": strings.Repeat("x", wire.MaxMetadata)}})
		assert.That(t, err != nil, "metadata that is too large is taken")
	})
}

// TestBodiesAreUnique: no two bodies are the same, because an ETag can be a function of the body.
func TestBodiesAreUnique(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		a.clock.setSkew(time.Hour)
		seen := map[string]bool{}
		a.hooks.Before(on("put", "", func(r hookstore.Request) {
			l, err := wire.Decode(r.Body)
			assert.OK(t, err)
			l.RefreshedAt, l.ExpiresAt, l.RefreshedBoot = "", "", 0 // a clock that stands still
			raw := string(l.Encode())
			assert.That(t, !seen[raw], "the same body again: %s", raw)
			seen[raw] = true
		}))
		for range 2 {
			k := a.takes(t, Shared)
			time.Sleep(2 * time.Minute)
			k.Release(t.Context())
		}
	})
}

// body returns an object as other clients read it.
func (w *world) body(key string) wire.Decoded {
	w.t.Helper()
	raw, _, err := w.mem.Get(context.Background(), key, wire.MaxBody)
	assert.OK(w.t, err)
	l, err := wire.Decode(raw)
	assert.OK(w.t, err)
	return l
}

// TestMisdatedLockIsRefreshedSoon: a lock that a slow wall clock has dated is refreshed as soon as the store allows.
func TestMisdatedLockIsRefreshedSoon(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		a.clock.setSkew(-time.Hour)
		a.takes(t, Shared)
		var puts atomic.Int32
		a.hooks.Before(when("put", "", func(context.Context, hookstore.Request) error {
			if puts.Add(1) < 3 {
				return errOutage
			}
			return nil
		}))
		time.Sleep(4 * time.Second)
		w.expire(t, time.Minute, Forever)
	})
}
