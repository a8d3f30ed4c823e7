package wire

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/text"
)

const (
	id     = "00112233445566778899aabbccddeeff"
	prefix = "index/"
)

var nine = time.Date(2026, 3, 7, 9, 0, 0, 0, time.UTC)

// TestKinds: what a key is, by its form alone.
func TestKinds(t *testing.T) {
	for key, want := range map[string]Kind{
		"index/lock.exclusive":                         KindExclusive,
		"index/lock.intent/x":                          KindIntent,
		"index/lock.intent/x.tmp":                      KindIntent,
		"index/lock.shared/x":                          KindShared,
		"index/lock.shared/a/b":                        KindShared, // another client's name, perhaps
		"index/lock.shared/2026-03-07T09:00:00+02:00":  KindShared,
		"index/lock.intent":                            KindOdd,
		"index/lock.shared":                            KindOdd,
		"index/lock.exclusive/":                        KindOdd,
		"index/lock.exclusive/x":                       KindOdd,
		"index/lock.exclusive/lock.shared/x":           KindUnknown,
		"index/lock.intent/lock.shared/x":              KindUnknown,
		"index/lock-fence":                             KindUnknown,
		"index/lock-once/prune":                        KindUnknown,
		"index/locks/a/lock.exclusive":                 KindUnknown,
		"index/lock.exclusively":                       KindUnknown,
		"lock.exclusive":                               KindUnknown,
		"":                                             KindUnknown,
		prefix + "lock.intent/" + timestamp(nine) + id: KindIntent,
	} {
		assert.Equal(t, Keys{prefix}.Kind(key), want, key)
	}
}

// TestFlags: the names of flags sort as their times do, whatever the year, and a place is the name.
func TestFlags(t *testing.T) {
	k := Keys{prefix}
	var keys []string
	for _, at := range []time.Time{time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), {}, nine, nine.Add(1), nine.In(time.FixedZone("", 7200)).Add(2), nine.AddDate(1e4, 0, 0)} {
		keys = append(keys, k.Intent(at, id))
		assert.Equal(t, Place(k.Intent(at, id)), Place(k.SharedFlag(at, id)), "place")
	}
	assert.That(t, slices.IsSorted(keys), "%q", keys)
	assert.That(t, FirstPlace < Place(keys[0]) && Place(keys[len(keys)-1]) < LastPlace, "first and last place")
	assert.That(t, !strings.HasPrefix(k.Fence(), k.All()), "a listing of the locks shows the fence")
}

func compressed(raw string) (zstded, gzipped []byte) {
	w, _ := zstd.NewWriter(nil)
	defer w.Close()
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	g.Write([]byte(raw))
	g.Close()
	return w.EncodeAll([]byte(raw), nil), b.Bytes()
}

// TestDecode: the times, the ttl and the error of a body.
func TestDecode(t *testing.T) {
	const plain = `{"operation":"b","holder":"h","acquired_at":"2026-03-07T09:00:00Z","expires_at":"2026-03-07T11:01:00+02:00"`
	zstded, gzipped := compressed(plain + "}")
	truncated, _ := compressed(plain)
	for name, c := range map[string]struct {
		raw       string
		ttl       time.Duration
		refreshed time.Time
		err       string
	}{
		"another client's":  {plain + "}", ForeignTTL, nine, ""},
		"zstd":              {string(zstded), ForeignTTL, nine, ""},
		"gzip":              {string(gzipped), ForeignTTL, nine, ""},
		"ours":              {plain + `,"ttl_seconds":90,"refreshed_at":"2026-03-07T09:00:10Z"}`, 90 * time.Second, nine.Add(10 * time.Second), ""},
		"a short ttl":       {plain + `,"ttl_seconds":1}`, MinTTL, nine.Add(time.Minute - MinTTL), ""},
		"no ttl":            {plain + `,"ttl_seconds":0}`, ForeignTTL, nine, ""},
		"nearly no ttl":     {plain + `,"ttl_seconds":5e-324}`, MinTTL, nine.Add(time.Minute - MinTTL), ""},
		"the shortest ttl":  {plain + `,"ttl_seconds":10.5}`, 10500 * time.Millisecond, nine.Add(time.Minute - 10500*time.Millisecond), ""},
		"a day and more":    {plain + `,"ttl_seconds":86401}`, MaxTTL, nine.Add(time.Minute - MaxTTL), ""},
		"beyond any number": {plain + `,"ttl_seconds":1e999}`, 0, time.Time{}, "not a lock's fields"},
		"not a number":      {plain + `,"ttl_seconds":NaN}`, 0, time.Time{}, "damaged: not JSON"},
		"a huge boot time":  {plain + `,"refreshed_boot_ns":9223372036854775808}`, 0, time.Time{}, "not a lock's fields"},
		"a huge pid":        {plain + `,"pid":99999999999999999999}`, 0, time.Time{}, "not a lock's fields"},
		"a negative seq":    {plain + `,"seq":-1}`, 0, time.Time{}, "not a lock's fields"},
		"year 10000":        {strings.Replace(plain, "2026-03-07T11", "10000-03-07T11", 1) + "}", 0, time.Time{}, "no valid expires_at"},
		"year 0":            {plain + `,"refreshed_at":"0000-01-01T00:00:00+01:00"}`, ForeignTTL, time.Date(-1, 12, 31, 23, 0, 0, 0, time.UTC), ""},
		"year 9999":         {plain + `,"refreshed_at":"9999-12-31T23:59:59-01:00"}`, ForeignTTL, time.Date(10000, 1, 1, 0, 59, 59, 0, time.UTC), ""},
		"a comma":           {plain + `,"expires_at":"2026-03-07T09:01:00,5Z"}`, 0, time.Time{}, "no valid expires_at"},
		"an hour's digit":   {plain + `,"refreshed_at":"2026-03-07T9:01:00Z"}`, 0, time.Time{}, "no valid refreshed_at"},
		"a whole day ahead": {plain + `,"refreshed_at":"2026-03-07T09:01:00+24:00"}`, 0, time.Time{}, "no valid refreshed_at"},
		"an hour of 60 min": {plain + `,"refreshed_at":"2026-03-07T09:01:00-01:60"}`, 0, time.Time{}, "no valid refreshed_at"},
		"nearly a day":      {plain + `,"refreshed_at":"2026-03-07T08:59:00.0+23:59"}`, ForeignTTL, nine.AddDate(0, 0, -1), ""},
		"many digits":       {plain + `,"refreshed_at":"2026-03-07T09:00:00.0000000009Z"}`, ForeignTTL, nine, ""},
		"a long ttl":        {plain + `,"ttl_seconds":1e300}`, MaxTTL, nine.Add(time.Minute - MaxTTL), ""},
		"a negative ttl":    {plain + `,"ttl_seconds":-1}`, 0, time.Time{}, "no valid ttl_seconds"},
		"no expires_at":     {`{"operation":"b"}`, 0, time.Time{}, "no valid expires_at"},
		"only refreshed_at": {`{"ttl_seconds":60,"refreshed_at":"2026-03-07T09:00:00Z"}`, 0, time.Time{}, "no valid expires_at"},
		"a bad refresh":     {plain + `,"refreshed_at":"x"}`, 0, time.Time{}, "no valid refreshed_at"},
		"empty":             {"", 0, time.Time{}, ErrEmptied.Error()},
		"encrypted":         {"\x01\x02", 0, time.Time{}, ErrEncrypted.Error()},
		"not JSON":          {plain, 0, time.Time{}, "damaged: not JSON"},
		"JSON and a word":   {plain + "} x", 0, time.Time{}, "damaged: not JSON"},
		"two objects":       {plain + "}" + plain + "}", 0, time.Time{}, "damaged: not JSON"},
		"two ttls":          {plain + `,"ttl_seconds":90,"ttl_seconds":30}`, 30 * time.Second, nine.Add(30 * time.Second), ""},
		"other JSON":        {`{"operation":1}`, 0, time.Time{}, "damaged: not a lock's fields"},
		"truncated zstd":    {string(zstded[:20]), 0, time.Time{}, "not valid zstd"},
		"zstd of not JSON":  {string(truncated), 0, time.Time{}, "damaged: not JSON"},
		"more than is read": {plain + strings.Repeat(" ", MaxBody) + "}", ForeignTTL, nine, ""}, // the reader cuts plain bodies
	} {
		l, err := Decode([]byte(c.raw))
		if c.err != "" {
			assert.That(t, err != nil && strings.Contains(err.Error(), c.err), "%s: %v", name, err)
			continue
		}
		assert.That(t, err == nil && l.TTL == c.ttl && l.Refreshed.Equal(c.refreshed) && l.Acquired.Equal(nine),
			"%s: %v, ttl %v, refreshed %v, acquired %v", name, err, l.TTL, l.Refreshed, l.Acquired)
	}
	l, err := Decode([]byte(`{"acquired_at":"yesterday","expires_at":"2026-03-07T09:01:00Z"}`)) // acquired_at is for people only
	assert.That(t, err == nil && l.AcquiredAt == "yesterday" && l.Refreshed.Equal(nine), "%+v, %v", l, err)
}

// TestDecodeIsBounded: a compressed body is read up to MaxBody, and texts of other clients are cut.
func TestDecodeIsBounded(t *testing.T) {
	zstded, gzipped := compressed(strings.Repeat(" ", 10<<20))
	for _, raw := range [][]byte{zstded, gzipped} {
		_, err := Decode(raw)
		assert.That(t, errors.Is(err, ErrLarge), "%v", err)
		_, err = Decode(raw[:len(raw)/2])
		assert.That(t, errors.Is(err, ErrLarge), "it is read beyond the bound: %v", err)
	}
	var body Body
	for _, text := range texts(&body) {
		text.SetString(strings.Repeat("x", 2*maxText))
	}
	body.ExpiresAt, body.RefreshedAt, body.Hostname = "2026-03-07T09:00:00Z", "", ""
	body.Metadata = map[string]string{"k": strings.Repeat("v", MaxMetadata)}
	l, err := Decode(body.Encode())
	assert.That(t, err == nil && l.Metadata == nil && l.Holder != "", "%v: metadata of %d bytes", err, BytesIn(l.Metadata))
	for name, text := range texts(&l.Body) {
		assert.That(t, text.Len() <= maxText+len("…"), "%s of %d bytes", name, text.Len())
	}
}

// texts returns the fields of a body that are texts, by their names.
func texts(b *Body) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	body := reflect.ValueOf(b).Elem()
	for _, f := range reflect.VisibleFields(body.Type()) {
		if f.Type.Kind() == reflect.String {
			all[f.Name] = body.FieldByIndex(f.Index)
		}
	}
	return all
}

// TestBoundsOfABody: the largest body and the largest metadata that are accepted, and the smallest that aren't.
func TestBoundsOfABody(t *testing.T) {
	const plain = `{"expires_at":"2026-03-07T09:00:00Z"`
	for _, over := range []int{0, 1} {
		raw := plain + strings.Repeat(" ", MaxBody+over-len(plain)-1) + "}"
		zstded, gzipped := compressed(raw)
		for _, body := range [][]byte{zstded, gzipped} {
			_, err := Decode(body)
			assert.That(t, errors.Is(err, ErrLarge) == (over > 0) && (over > 0 || err == nil), "%d bytes: %v", len(raw), err)
		}
		l, err := Decode(fmt.Appendf(nil, `%s,"metadata":{"k":%q}}`, plain, strings.Repeat("v", MaxMetadata-1+over)))
		assert.That(t, err == nil && (l.Metadata == nil) == (over > 0), "%v: %d bytes of metadata", err, BytesIn(l.Metadata))
	}
}

// TestTimestamp: a year without four digits is clamped, and no other.
func TestTimestamp(t *testing.T) {
	for at, want := range map[time.Time]string{
		nine: "20260307T090000.000000000Z",
		time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC):                   "99991231T000000.000000000Z",
		time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200)): "99991231T235959.999999999Z",
		time.Date(0, 6, 1, 0, 0, 0, 0, time.UTC):                        "00000601T000000.000000000Z",
		time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 7200)):        "00000101T000000.000000000Z",
	} {
		assert.Equal(t, timestamp(at), want, "%v", at)
	}
}

func FuzzDecode(f *testing.F) {
	const plain = `{"acquired_at":"2026-03-07T11:00:00+02:00","expires_at":"2026-03-07T11:01:00+02:00","holder":"laptop (pid 4711)","operation":"backup","is_shared":true}`
	zstded, gzipped := compressed(plain)
	f.Add([]byte(plain))
	f.Add(zstded)
	f.Add(gzipped)
	f.Add([]byte{})
	f.Add([]byte{0x01, 0x02})
	f.Add([]byte(`{"expires_at":"9999-12-31T23:59:59Z","ttl_seconds":1e300}`))
	f.Add([]byte(`{"expires_at":"2026-03-07T09:00:00Z","ttl_seconds":60,"refreshed_at":"2026-03-07T08:59:00Z","state":"held"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := Decode(raw)
		if err != nil {
			assert.That(t, len(raw) == 0 == errors.Is(err, ErrEmptied), "%q: %v", raw, err)
			return
		}
		assert.That(t, l.TTL >= MinTTL && l.TTL <= MaxTTL, "%q: ttl %v", raw, l.TTL)
		again, err := Decode(l.Body.Encode())
		if err != nil {
			t.Fatalf("%q: doesn't survive being written: %v", raw, err)
		}
		assert.That(t, again.Expires.Equal(l.Expires) && again.TTL == l.TTL && again.Holder == l.Holder,
			"%q: %+v became %+v", raw, l, again)
		if s := text.Brief(l.Holder + l.Operation); strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q is shown with control characters", raw)
		}
	})
}

func FuzzKeys(f *testing.F) {
	for _, key := range []string{
		"index/lock.exclusive", "index/lock.intent/x", "index/lock.shared/2026-03-07T09:00:00+02:00", "index/lock.shared/x.tmp",
		"index/lock.shared", "index/lock.", "index/locks/a/lock.exclusive", "index/lock.exclusive/x",
	} {
		f.Add(key, int64(0))
	}
	k := Keys{prefix}
	f.Fuzz(func(t *testing.T, key string, unix int64) {
		kind := k.Kind(key)
		assert.That(t, kind == KindUnknown || strings.HasPrefix(key, k.All()), "%q is a %d that no listing shows", key, kind)
		at := time.Unix(unix, 0)
		for flag, want := range map[string]Kind{k.SharedFlag(at, id): KindShared, k.Intent(at, id): KindIntent} {
			width := len(k.SharedFlag(time.Unix(0, 0), id))
			assert.That(t, len(flag) == width && !strings.Contains(flag, ":"), "%q is of another width, or has a colon", flag)
			assert.That(t, k.Kind(flag) == want, "%q is of kind %d", flag, k.Kind(flag))
		}
	})
}

// TestTicketKeys: only a key of the exact form shows that its object is a ticket.
func TestTicketKeys(t *testing.T) {
	k := Keys{Prefix: "index/"}
	at, id := time.Date(2026, 3, 7, 9, 0, 0, 12345678, time.UTC), strings.Repeat("8f14e45f", 4)
	const name = "20260307T090000.012345678Z-8f14e45f8f14e45f8f14e45f8f14e45f"
	for _, flag := range []string{k.Intent(at, id), k.SharedFlag(at, id)} {
		assert.That(t, k.IsTicket(Ticket(flag)) && !k.IsTicket(flag), "%s", flag)
		assert.That(t, k.Kind(Ticket(flag)) == k.Kind(flag), "the kind of %s", Ticket(flag))
	}
	for _, key := range []string{
		"index/lock.exclusive-w", "index/lock.shared/-w", "index/lock.shared/w", "index/lock.shared/x-w",
		"index/lock.shared/a/" + name + "-w", "index/lock.shared/lock.shared/" + name + "-w", "index/lock.intent/a/" + name + "-w",
		"index/lock.other/" + name + "-w", "other/lock.shared/" + name + "-w", "index/lock.exclusive/" + name + "-w",
		"index/lock.shared/" + name, "index/lock.shared/" + name + "-W", "index/lock.shared/" + name + "-w-w", "index/lock.shared/" + name + "-w.tmp",
		"index/lock.shared/" + name + "0-w", "index/lock.shared/" + name[:len(name)-1] + "-w", "index/lock.shared/" + strings.ToUpper(name) + "-w",
		"index/lock.shared/20261307T090000.012345678Z-" + id + "-w", "index/lock.shared/20260307T090000.01234567Z-" + id + "-w",
		"index/lock.shared/20260307T090000Z-" + id + "-w", "index/lock.shared/20260307T090000.012345678Z" + id + "-w",
	} {
		assert.That(t, !k.IsTicket(key), "%s counts as a ticket", key)
	}
}
