package audit

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPlace: the path of a record names the lock of a repository, however the repository was named.
func TestPlace(t *testing.T) {
	for _, c := range []struct{ name, path, want string }{
		{"repository", "/srv/repo/index/lock.shared/20260307-x", "/srv/repo"},
		{"repository", "file:///srv/repo/index/lock.intent/20260307-x", "/srv/repo"},
		{"repository", "/index/lock.intent/x", "/"},
		{"repository", "/srv/index/locks/repo/index/lock.intent/x", "/srv/index/locks/repo"},
		{"n", "s3://bucket/p/index/locks/n/lock.shared/x", "s3://bucket/p#n"},
		{"n", "repo:s3://bucket/p?endpoint=https://host#n", "s3://bucket/p#n"},
		{"n", "repo:/srv/repo#n", "/srv/repo#n"},
		{"nightly", "redis://host/0?key=nightly", "redis://host/0?key=nightly"},
		{"n", "", ""},
	} {
		if got := (Record{LockName: c.name, LockPath: c.path}).place(); got != c.want {
			t.Errorf("%s: %q, want %q", c.path, got, c.want)
		}
	}
}

// TestPlaces: locks of two places that overlap are drawn in lanes of their own, below the names of the
// places. Locks of one place are drawn as without a place.
func TestPlaces(t *testing.T) {
	hour := time.Date(2026, 3, 7, 1, 0, 0, 0, time.UTC)
	at := func(id, mode, path string) []Record {
		r := Record{Event: Acquired, RequestID: id, Timestamp: hour, Mode: mode, Operation: "x", Hostname: "h", TTLSeconds: 60, LockPath: path}
		return []Record{r, {Event: Released, RequestID: id, Timestamp: hour.Add(time.Hour), Result: Success}}
	}
	two := NewHistory(slices.Concat(at("b", "exclusive", "/b/index/lock.intent/x"), at("a", "shared", "/a/index/lock.shared/x"), at("a2", "shared", "/a/index/lock.shared/y")))
	timeline := two.Timeline()
	var got []string
	for _, g := range timeline.groups {
		got = append(got, g.place)
	}
	if !two.Several() || !slices.Equal(got, []string{"/a", "/b"}) {
		t.Fatalf("%t: %q", two.Several(), got)
	}
	if a, b := timeline.groups[0], timeline.groups[1]; len(a.shared) != 2 || len(a.exclusive) != 0 || len(b.shared) != 0 || len(b.exclusive) != 1 {
		t.Errorf("lanes: %+v, %+v", a, b)
	}
	drawn := svg(t, two)
	if a, b := strings.Index(drawn, ">/a<"), strings.Index(drawn, ">/b<"); a < 0 || b < a {
		t.Errorf("the names are at %d and %d", a, b)
	}
	for i, g := range timeline.groups {
		if timeline.stack(); i > 0 && g.y < timeline.groups[i-1].y+timeline.groups[i-1].lanes(true)*lane+heading {
			t.Errorf("%s begins at %d", g.place, g.y)
		}
	}
	one := slices.Concat(at("1", "exclusive", "/a/index/lock.intent/x"), at("2", "shared", "/a/index/lock.shared/x"))
	with := svg(t, NewHistory(one))
	for i := range one {
		one[i].LockPath = ""
	}
	if with != svg(t, NewHistory(one)) {
		t.Error("one place is drawn in another way than none")
	}
}

// TestManyPlaces: the drawing of many places is bounded, and has the newest locks.
func TestManyPlaces(t *testing.T) {
	h := NewHistory(load(500, func(i int) (Record, time.Duration, time.Duration) {
		begin := time.Duration(i) * time.Minute
		return Record{Mode: "shared", Operation: "backup", Hostname: "h", TTLSeconds: 60, LockPath: "/r" + strings.Repeat("x", i%100) + "/index/lock.shared/x"}, begin, begin + time.Minute
	}))
	timeline := h.Timeline()
	if len(timeline.bars) == 0 || len(timeline.groups) > maxLanes {
		t.Errorf("%d bars of %d places", len(timeline.bars), len(timeline.groups))
	}
	if last := timeline.bars[len(timeline.bars)-1]; last.Span != h.Spans[len(h.Spans)-1] {
		t.Errorf("the last is of %v", last.Asked)
	}
}

// TestLongPlaceKeepsItsEnd: places that differ in their ends alone have different names in a drawing.
func TestLongPlaceKeepsItsEnd(t *testing.T) {
	long := "/" + strings.Repeat("ä/", 100)
	if a, b := tail(long+"one"), tail(long+"two"); a == b || !strings.HasSuffix(a, "/one") || len(a) > maxTitle+len("…") {
		t.Errorf("%q and %q", a, b)
	}
}
