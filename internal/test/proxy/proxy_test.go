package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPassesOn(t *testing.T) {
	f := newFixture(t, "answer")
	res, answer, err := f.do("PUT", "/bucket/a%20b/c?x=1", "body", "If-None-Match", "*", "X-Some", "thing")
	if err != nil || answer != "answer" || res.Header.Get("Date") != "Sat, 21 Nov 2026 10:00:00 GMT" {
		t.Fatalf("%v %q %v", err, answer, res)
	}
	got := f.got[0]
	if got.RequestURI != "/bucket/a%20b/c?x=1" || got.Host != f.Host() || f.sent[0] != "body" ||
		got.ContentLength != 4 || got.Header.Get("If-None-Match") != "*" || got.Header.Get("X-Some") != "thing" {
		t.Errorf("%v", got)
	}
}

func TestFaultsForwardNothing(t *testing.T) {
	for name, c := range map[string]struct {
		fault Fault
		check func(res *http.Response, answer string, err error) bool
	}{
		"reset": {Fault{Reset: true}, func(_ *http.Response, _ string, err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
		"status": {Throttled, func(res *http.Response, answer string, err error) bool {
			return err == nil && res.StatusCode == 503 && strings.Contains(answer, "<Code>SlowDown</Code>")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "answer")
			f.Behave(always(c.fault))
			if res, answer, err := f.do("PUT", "/bucket/key", "body"); !c.check(res, answer, err) {
				t.Errorf("%v %q %v", res, answer, err)
			}
			if n := f.arrived(); n != 0 {
				t.Errorf("%d requests were forwarded", n)
			}
		})
	}
}

func TestFaultsForward(t *testing.T) {
	for name, c := range map[string]struct {
		fault Fault
		want  error // io.EOF: the connection ended before an answer
		times int
	}{
		"lose answer": {Fault{LoseAnswer: true}, io.EOF, 1},
		"late":        {Fault{Late: 20 * time.Millisecond}, io.EOF, 1},
		"truncate":    {Fault{Truncate: true}, io.ErrUnexpectedEOF, 1},
		"again":       {Fault{Again: 20 * time.Millisecond}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, strings.Repeat("answer", 1000))
			f.Behave(always(c.fault))
			_, answer, err := f.do("PUT", "/bucket/key", "body")
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if name == "truncate" && len(answer) != 3000 {
				t.Errorf("%d bytes of the body were answered", len(answer))
			}
			if name == "late" && f.arrived() != 0 {
				t.Error("it was forwarded at once")
			}
			f.within(10*time.Minute, "forwarded requests", func() bool { return f.arrived() == c.times })
			for _, body := range f.sent {
				if body != "body" {
					t.Errorf("%q was forwarded", body)
				}
			}
		})
	}
}

// TestHang: the proxy neither answers nor forwards until the client goes.
func TestHang(t *testing.T) {
	for name, blackhole := range map[string]bool{"hang": false, "blackhole": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "answer")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f.Behave(Behaviour{Blackhole: blackhole, Decide: func(Request) Fault {
				time.AfterFunc(100*time.Millisecond, cancel) // it has come
				return Fault{Hang: !blackhole}
			}})
			r, _ := http.NewRequestWithContext(ctx, "PUT", f.URL()+"/bucket/key", strings.NewReader("body"))
			if _, err := f.client.Do(r); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			f.within(10*time.Minute, "the log", func() bool { return len(f.Take()) == 1 })
			if f.arrived() != 0 {
				t.Error("it was forwarded")
			}
		})
	}
}

func TestDelays(t *testing.T) {
	f := newFixture(t, "answer")
	f.Behave(Behaviour{Latency: 10 * time.Millisecond, Decide: func(Request) Fault {
		return Fault{Before: 30 * time.Millisecond, After: 50 * time.Millisecond}
	}})
	start := time.Now()
	if _, _, err := f.do("GET", "/bucket/key", ""); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}

func TestStopAndStart(t *testing.T) {
	f := newFixture(t, "answer")
	url := f.URL()
	if _, _, err := f.do("GET", "/bucket/key", ""); err != nil {
		t.Fatal(err)
	}
	f.Stop()
	if _, _, err := f.do("GET", "/bucket/key", ""); err == nil {
		t.Fatal("it answers though it is stopped")
	}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	if f.URL() != url {
		t.Errorf("it was at %s and is at %s", url, f.URL())
	}
	if _, _, err := f.do("PUT", "/bucket/key", "x"); err != nil {
		t.Error(err)
	}
}

// TestClose: a request that was put off is not forwarded after Close.
func TestClose(t *testing.T) {
	f := newFixture(t, "answer")
	f.Behave(always(Fault{Late: time.Hour}))
	if _, _, err := f.do("PUT", "/bucket/key", "x"); err == nil {
		t.Fatal("it was answered")
	}
	f.Close()
	if f.arrived() != 0 {
		t.Error("it was forwarded")
	}
}

func TestBadTarget(t *testing.T) {
	if _, err := New("no url"); err == nil {
		t.Error("taken")
	}
}
