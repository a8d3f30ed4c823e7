package audit

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
)

var update = flag.Bool("update", false, "write what was drawn into the golden files")

func svg(t *testing.T, h History) string {
	t.Helper()
	var b bytes.Buffer
	assert.OK(t, h.Timeline().WriteSVG(&b))
	return b.String()
}

// TestGolden: testdata/history.svg is the drawing of a night. After a run with -update, look at it in a
// browser.
func TestGolden(t *testing.T) {
	at := func(minute int, event, id string, r Record) Record { return at(60*minute, event, id, r) }
	web := Record{Mode: "shared", Operation: "backup", Job: "home", Hostname: "web", Actor: "root", PID: 7, TTLSeconds: 60}
	db := Record{Mode: "shared", Operation: "backup", Hostname: "db", Actor: "backup", PID: 8, TTLSeconds: 60}
	prune := Record{Mode: "exclusive", Operation: "prune", Hostname: "db", Actor: "backup", PID: 9, TTLSeconds: 60, WaitedSeconds: 1200}
	refused := Record{Mode: "exclusive", Operation: "check", Hostname: "web", Actor: "root", PID: 10, HeldBy: []Holder{{Holder: "backup@db (pid 9)", Intent: "prune"}}}
	short := Record{Mode: "shared", Operation: "restore", Hostname: "web", Actor: "root", PID: 11, TTLSeconds: 60}
	log := []Record{
		at(0, Acquired, "web", web), at(5, Acquired, "db", db),
		at(10, Suspended, "web", Record{}), at(18, Lost, "web", Record{Error: "late"}), at(18, Paused, "web", Record{}),
		at(20, Resumed, "web2", Record{ResumedFrom: "web"}), at(20, Continued, "web2", Record{}),
		at(25, Released, "web2", Record{Result: Success}), at(30, Released, "db", Record{Result: Failure, ExitCode: &code3}),
		at(30, Stolen, "prune", Record{Hostname: "db", HeldBy: []Holder{{Holder: "x@y (pid 1)", Intent: "backup"}}}),
		at(30, Acquired, "prune", prune), at(35, Blocked, "check", refused), at(50, Lost, "prune", Record{Error: "broken"}),
		at(52, Released, "prune", Record{Result: Failure}), at(59, Acquired, "end", db),
	}
	log = append(log, load(nine(40*60), 10, func(i int) (Record, time.Duration, time.Duration) { // drawn as one bar
		begin := time.Duration(i) * 4 * time.Second
		return short, begin, begin + time.Second
	})...)
	got := svg(t, NewHistory(log))
	const golden = "testdata/history.svg"
	if *update {
		assert.OK(t, os.WriteFile(golden, []byte(got), 0o666))
	}
	want, err := os.ReadFile(golden)
	assert.OK(t, err)
	assert.That(t, got == string(want), "it isn't %s: read the difference, and run go test ./internal/audit -run Golden -update\n%s", golden, got)
}

// load returns the log of n locks, which lock defines: a record, and when the lock was acquired and
// released, after the start.
func load(start time.Time, n int, lock func(i int) (r Record, begin, end time.Duration)) (records []Record) {
	for i := range n {
		r, begin, end := lock(i)
		r.Event, r.RequestID, r.Timestamp = Acquired, strconv.Itoa(i), start.Add(begin)
		records = append(records, r, Record{Event: Released, RequestID: r.RequestID, Timestamp: start.Add(end), Result: Success})
	}
	return records
}

// busy is the history of n locks of a load.
func busy(n int, lock func(i int) (Record, time.Duration, time.Duration)) History {
	return NewHistory(load(nine(0), n, lock))
}

var evil = strings.Repeat(`"<&`, 200)

// loads are logs that would make large drawings.
var loads = map[string]func(i int) (Record, time.Duration, time.Duration){
	"a year of jobs": func(i int) (Record, time.Duration, time.Duration) {
		begin := time.Duration(i) * 20 * time.Minute
		return Record{Mode: []string{"shared", "exclusive"}[i%24/23], Operation: "backup", Job: fmt.Sprint("job", i%5), Hostname: fmt.Sprint("host", i%3), TTLSeconds: 60}, begin, begin + 15*time.Minute
	},
	"all at once": func(i int) (Record, time.Duration, time.Duration) {
		return Record{Mode: "shared", Operation: "backup", Hostname: fmt.Sprint("host", i), TTLSeconds: 60}, time.Duration(i), time.Hour + time.Duration(i)
	},
	"another host each time": func(i int) (Record, time.Duration, time.Duration) {
		return Record{Mode: "shared", Operation: "backup", Hostname: fmt.Sprint("host", i), TTLSeconds: 60}, time.Duration(i) * time.Minute, time.Duration(i+2) * time.Minute
	},
	"many places": func(i int) (Record, time.Duration, time.Duration) {
		path := "/r" + strings.Repeat("x", i%100) + "/index/lock.shared/x"
		return Record{Mode: "shared", Operation: "backup", Hostname: "h", TTLSeconds: 60, LockPath: path}, time.Duration(i) * time.Minute, time.Duration(i+1) * time.Minute
	},
	"long texts": func(i int) (Record, time.Duration, time.Duration) {
		return Record{Mode: "shared", Operation: evil, Job: evil, Hostname: fmt.Sprint(i%400, evil), Actor: evil, TTLSeconds: 60}, time.Duration(i) * time.Minute, time.Duration(i+2) * time.Minute
	},
}

var pixels = regexp.MustCompile(`<svg [^>]*height="([0-9]+)"`)

// TestBounded: a drawing has a bounded height and size, however many locks and places there are. It has
// the newest lock.
func TestBounded(t *testing.T) {
	const maxHeight, maxBytes = 2500, 1 << 20
	locks := rounds.Fewer(25_000, 5_000)
	for name, lock := range loads {
		h := busy(locks, lock)
		timeline := h.Timeline()
		drawn := 0
		for _, m := range timeline.bars {
			drawn += m.count
		}
		assert.That(t, drawn+timeline.Left == locks && drawn > 0, "%s: %d locks are drawn, %d left out", name, drawn, timeline.Left)
		newest := h.Spans[locks-1].Until()
		assert.That(t, slices.ContainsFunc(timeline.bars, func(m *mark) bool { return m.until.Equal(newest) }), "%s: no lock until %v is drawn", name, newest)
		assert.That(t, timeline.shapes() <= maxShapes && len(timeline.groups) <= maxLanes, "%s: %d shapes, %d places", name, timeline.shapes(), len(timeline.groups))
		text := svg(t, h)
		height, err := strconv.Atoi(pixels.FindStringSubmatch(text)[1])
		most := maxHeight + heading*(len(timeline.groups)-1)
		assert.That(t, err == nil && height <= most && len(text) <= maxBytes, "%s: %d bytes, %d pixels high", name, len(text), height)
		left := strings.Contains(text, fmt.Sprintf("%d older locks aren't drawn", timeline.Left))
		assert.Equal(t, left, timeline.Left > 0, "%s: the drawing has the number of locks that are left out", name)
	}
}

// TestManyEvents: the numbers of removals, and of stops of one lock, are bounded too.
func TestManyEvents(t *testing.T) {
	removals, stops := []Record{}, []Record{at(0, Acquired, "a", Record{Mode: "shared"})}
	for i := range 20_000 {
		removals = append(removals, at(i, Broken, "", Record{Actor: evil}))
		stops = append(stops, at(i+1, []string{Suspended, Continued}[i%2], "a", Record{}))
	}
	for _, c := range []struct {
		shape       string
		log         []Record
		least, most int
	}{{"<circle", removals, 50, 200}, {`class="stop"`, stops, 1, width / 2}} {
		text := svg(t, NewHistory(c.log))
		n := strings.Count(text, c.shape)
		assert.That(t, n >= c.least && n <= c.most && len(text) <= 1<<20, "%d times %s, %d bytes", n, c.shape, len(text))
	}
}

// TestLeftOut: the oldest locks are left out, and Between returns them.
func TestLeftOut(t *testing.T) {
	h := busy(5000, loads["another host each time"])
	timeline := h.Timeline()
	assert.Need(t, timeline.Left > 0 && timeline.bars[0].Asked == timeline.Begin, "%d are left out before %v", timeline.Left, timeline.Begin)
	assert.Equal(t, len(h.Between(time.Time{}, timeline.Begin).Spans), timeline.Left, "older locks")
}

// TestBarsThatTouch: narrow bars with the same name are drawn as one, which counts the lost locks, and wide ones aren't.
func TestBarsThatTouch(t *testing.T) {
	h := busy(1000, func(i int) (Record, time.Duration, time.Duration) {
		r := Record{Mode: "shared", Operation: "backup", Hostname: "host", TTLSeconds: 60}
		if i < 4 { // two wide bars, without a gap, of each of two jobs
			r.Job = fmt.Sprint(i % 2)
			return r, time.Duration(i/2) * time.Hour, time.Duration(i/2+1) * time.Hour
		}
		return r, 3*time.Hour + time.Duration(i)*time.Second, 3*time.Hour + time.Duration(i)*time.Second + time.Millisecond
	})
	h.Spans[10].Lost, h.Spans[20].Lost = true, true
	timeline := h.Timeline()
	counts := map[int]int{}
	for _, m := range timeline.bars {
		counts[m.count]++
		assert.Equal(t, strings.HasSuffix(m.title(), "\nlost: 2"), m.count > 1, m.title())
	}
	assert.Equal(t, counts, map[int]int{1: 4, 996: 1}, "bars by their numbers of locks")
	assert.Equal(t, len(timeline.groups[0].lanes), 2, "lanes")
}

// TestBetween: a part of a history has each lock that was held or waited for in it.
func TestBetween(t *testing.T) {
	h := NewHistory(log)
	for _, test := range []struct {
		since, until    time.Time
		spans, removals int
	}{
		{time.Time{}, time.Time{}, 5, 2},
		{nine(4), time.Time{}, 3, 2},
		{nine(3), nine(6), 2, 0},
		{nine(26), nine(34), 2, 1},
		{nine(50), time.Time{}, 0, 0},
	} {
		part := h.Between(test.since, test.until)
		got := []int{len(part.Spans), len(part.Removals)}
		assert.Equal(t, got, []int{test.spans, test.removals}, "locks and removals from %v to %v", test.since, test.until)
	}
}

// TestPlace: a repository has one place, whether --repo or --also names it.
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
		assert.Equal(t, (Record{LockName: c.name, LockPath: c.path}).place(), c.want, c.path)
	}
}

// TestPlaces: locks of two places that overlap have lanes of their own, below the names of the places, and a dot names
// its place. With one place, the drawing is the same as without any, and has a lane of each mode.
func TestPlaces(t *testing.T) {
	locks := func(paths ...string) History { // /b is exclusive
		return busy(len(paths), func(i int) (Record, time.Duration, time.Duration) {
			mode := map[bool]string{true: "exclusive", false: "shared"}[strings.HasPrefix(paths[i], "/b")]
			return Record{Mode: mode, Operation: "x", Hostname: "h", TTLSeconds: 60, LockPath: paths[i]}, 0, time.Hour
		})
	}
	two := locks("/b/index/lock.intent/x", "/a/index/lock.shared/x", "/a/index/lock.shared/y")
	two.Removals = []Removal{{At: nine(0), Place: "/b"}}
	timeline := two.Timeline()
	var got []string
	for _, g := range timeline.groups {
		got = append(got, fmt.Sprintf("%s %s %d", g.place, g.mode, len(g.lanes)))
	}
	assert.That(t, two.Several(), "one place")
	assert.Equal(t, got, []string{"/a shared 2", "/b exclusive 1"})
	drawn := svg(t, two)
	_, below, named := strings.Cut(drawn, ">/a<")
	assert.That(t, named && strings.Contains(below, ">/b<"), "the names, one below the other: %s", drawn)
	assert.That(t, strings.Contains(drawn, "\n/b</title></circle>"), "the dot: %s", drawn)
	timeline.stack()
	a, b := timeline.groups[0], timeline.groups[1]
	assert.That(t, b.y >= a.y+len(a.lanes)*lane+heading, "%s begins at %d, and %s at %d", a.place, a.y, b.place, b.y)
	one := svg(t, locks("/a/index/lock.shared/x", "/a/index/lock.shared/y"))
	assert.That(t, one == svg(t, locks("", "")), "the drawings with one place and without any differ")
	assert.That(t, strings.Contains(one, ">exclusive<"), "no lane of exclusive locks: %s", one)
}

// TestLongPlaceKeepsItsEnd: long places that differ only at their ends have different names in a drawing.
func TestLongPlaceKeepsItsEnd(t *testing.T) {
	long := "/" + strings.Repeat("ä/", 100)
	a, b := tail(long+"one"), tail(long+"two")
	assert.That(t, a != b && strings.HasSuffix(a, "/one") && len(a) <= maxTitle+len("…"), "%q and %q", a, b)
}

// TestAxis: the axis of some weeks has dates, and the axis of some hours has times.
func TestAxis(t *testing.T) {
	for long, want := range map[time.Duration]string{5 * time.Hour: ">10:00:00<", 9 * 24 * time.Hour: ">2026-03-08<"} {
		text := svg(t, busy(2, func(i int) (Record, time.Duration, time.Duration) {
			return Record{Mode: "shared"}, time.Duration(i) * long, time.Duration(i)*long + time.Minute
		}))
		assert.That(t, strings.Contains(text, want), "%v has no %s: %s", long, want, text)
	}
}

// TestNameOfALock: a name has maxName characters at most.
func TestNameOfALock(t *testing.T) {
	for n, want := range map[int]string{maxName: "ä: " + strings.Repeat("ö", maxName-3), maxName + 1: "ä: " + strings.Repeat("ö", maxName-4) + "…"} {
		s := Span{Host: "ä", Job: strings.Repeat("ö", n-3)}
		assert.Equal(t, s.name(), want)
	}
}

// TestDotOfMany: a dot of several removals describes the first, and counts the others.
func TestDotOfMany(t *testing.T) {
	removals := []Record{at(0, Broken, "", Record{Actor: "first"}), at(3600, Broken, "", Record{}), at(3600, Broken, "", Record{}), at(3600, Broken, "", Record{})}
	text := svg(t, NewHistory(removals))
	assert.Equal(t, strings.Count(text, "<circle"), 2, "dots")
	_, first, _ := strings.Cut(text, "<circle")
	first, second, _ := strings.Cut(first, "<circle")
	assert.That(t, !strings.Contains(first, " more<") && strings.Contains(second, "\nand 2 more<"), "%s\n%s", first, second)
}
