package dir

import (
	"testing"
	"time"
)

// TestNowIsBehindTheKernelsClock: the kernel stamps files with a clock that advances with the
// timer interrupt, every 10 ms at worst. Page.Now must never be later than that clock,
// although a finer one is; otherwise a file that is put after the list could be older than the
// list.
func TestNowIsBehindTheKernelsClock(t *testing.T) {
	const interrupt = 10 * time.Millisecond
	var now time.Time
	s, err := Open(t.Context(), t.TempDir(), Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	s.local = true // in any file system
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d := time.Duration(0); d < 2*interrupt; d += interrupt / 10 {
		now = start.Add(d)
		page, err := s.List(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		if stamp := now.Truncate(interrupt); page.Now.After(stamp) {
			t.Errorf("%v after an interrupt: a file is stamped %v before Page.Now", d%interrupt, page.Now.Sub(stamp))
		}
		if behind := now.Sub(page.Now); behind > time.Second {
			t.Errorf("it is %v behind", behind)
		}
	}
}

// TestNoNowWhereTheClockIsAnothers: on a file system that isn't local, mod times come from
// another clock, which this store can't read.
func TestNoNowWhereTheClockIsAnothers(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.local = false
	if page, err := s.List(t.Context(), "", ""); err != nil || !page.Now.IsZero() {
		t.Errorf("%v, %v", page.Now, err)
	}
}

// TestMachineClock: a local file system's files are dated by this machine's wall clock, and the
// store says so. Of a network file system it says neither.
func TestMachineClock(t *testing.T) {
	for _, local := range []bool{true, false} {
		if p := (&Store{local: local}).Properties(); p.MachineClock != local || p.StoreClock != local {
			t.Errorf("local %v: %+v", local, p)
		}
	}
}
