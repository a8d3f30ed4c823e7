//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/proxy"
)

func TestQuantiles(t *testing.T) {
	for _, c := range []struct {
		s           counts
		median, p90 int
		text        string
	}{
		{counts{7}, 7, 7, "7"},
		{counts{2, 1}, 1, 2, "1-2"},
		{counts{3, 1, 2}, 2, 3, "1-3"},
		{counts{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 5, 9, "1-10"},
	} {
		if m, p, text := c.s.median(), c.s.p90(), c.s.String(); m != c.median || p != c.p90 || text != c.text {
			t.Errorf("%d: median %d, p90 %d, %q; want %d, %d, %q", []int(c.s), m, p, text, c.median, c.p90, c.text)
		}
	}
}

// TestTable: a missing measurement is a dash, and never a number.
func TestTable(t *testing.T) {
	got := table{{"on a disk", []row{
		{name: "flock", n: 3, took: times{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond}, memory: sizes{1 << 20}},
		{name: "ours", n: 1, took: times{5 * time.Millisecond}, trips: [2]counts{{2}, {1}}, requests: [2]counts{{2, 3}, {1}}},
	}}}.markdown()
	for _, want := range []string{
		"flock 3 2.00 3.00 1.00 – – – – – – – – – 1.0 1.00 –",
		"ours 1 5.00 5.00 2.50 – – – 2 + 1 – 2-3 + 1 – – – – – –",
	} {
		plain := strings.Join(strings.Fields(strings.ReplaceAll(got, "|", " ")), " ")
		if !strings.Contains(plain, want) {
			t.Errorf("%q isn't in\n%s", want, got)
		}
	}
}

// TestLockPart: restic's lock ends with the first deletion under locks/, and requests
// elsewhere are no part of it.
func TestLockPart(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	entry := func(op, key string, start, end int) proxy.Entry {
		return proxy.Entry{Request: proxy.Request{Op: op, Key: key}, Start: at(start), End: at(end)}
	}
	acquire, release := lockPart(proxy.Log{
		entry("get", "restic/config", 0, 1),
		entry("list", "restic/locks/", 2, 3),
		entry("put", "restic/locks/1", 4, 9),
		entry("get", "restic/locks/2", 5, 6),
		entry("get", "restic/index/1", 10, 20),
		entry("delete", "restic/locks/1", 21, 24),
		entry("list", "restic/locks/", 24, 25),
	}, "restic/locks/")
	if len(acquire) != 3 || span(acquire) != 7*time.Second {
		t.Errorf("acquire: %v, %v", span(acquire), acquire)
	}
	if len(release) != 2 || span(release) != 4*time.Second {
		t.Errorf("release: %v, %v", span(release), release)
	}
}
