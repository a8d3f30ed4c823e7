package otel

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestHeld: a prune holds the lock for 100 s, in which it is refreshed each 30 s; a backup
// is refused, and another one waits.
func TestHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		prune, err := w.locker(t).Exclusive(t.Context(), "prune")
		must(t, err)
		backups := w.locker(t)
		if _, err := backups.Shared(t.Context(), "backup"); !errors.Is(err, replock.ErrHeld) {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(100 * time.Second)
			must(t, prune.Release(t.Context()))
		}()
		backup, err := backups.Shared(t.Context(), "backup", replock.Wait(replock.Forever))
		must(t, err)

		got := w.collect(t)
		got.sum(t, "repolock.refreshes", "exclusive", "prune", 3)
		got.sum(t, "repolock.blocked", "shared", "backup", 1)
		got.sum(t, "repolock.holding", "exclusive", "prune", 0)
		got.sum(t, "repolock.holding", "shared", "backup", 1)
		got.histogram(t, "repolock.held", "exclusive", "prune", 1, 100, 103) // the first backup looks again for 2 s
		got.histogram(t, "repolock.wait", "exclusive", "prune", 1, 0, 1)
		got.histogram(t, "repolock.wait", "shared", "backup", 2, 100, 118) // soon, and after a poll
		got.none(t, "repolock.lost", "repolock.refresh_failures", "repolock.resumed")

		spans := w.spans.Ended()
		if len(spans) != 1 || spans[0].Name() != "lock acquired" || spans[0].EndTime().Sub(spans[0].StartTime()) < 100*time.Second ||
			spans[0].Status().Code == codes.Error || len(spans[0].Events()) > 0 {
			t.Errorf("spans %v", spans)
		}
		must(t, backup.Release(t.Context()))
		w.flush(t)
		if spans := w.spans.Ended(); len(spans) != 2 {
			t.Errorf("%d spans", len(spans))
		}
	})
}

// TestLost: the store is away for too long, and the lock is resumed when it is back.
func TestLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		lock, err := w.locker(t).Shared(t.Context(), "backup")
		must(t, err)
		w.away.Store(true)
		<-lock.Context().Done()
		got := w.collect(t)
		got.sum(t, "repolock.lost", "shared", "backup", 1)
		got.sum(t, "repolock.refresh_failures", "shared", "backup", 3)
		got.sum(t, "repolock.holding", "shared", "backup", 0)
		got.histogram(t, "repolock.held", "shared", "backup", 1, 54, 56) // until the deadline

		spans := w.spans.Ended()
		if len(spans) != 1 || spans[0].Status().Code != codes.Error || len(spans[0].Events()) != 4 { // and an event that it gave up
			t.Fatalf("spans %v", spans)
		}

		w.away.Store(false)
		again, err := lock.Resume(t.Context())
		must(t, err)
		time.Sleep(20 * time.Second)
		must(t, again.Release(t.Context()))
		got = w.collect(t)
		got.sum(t, "repolock.resumed", "shared", "backup", 1)
		got.sum(t, "repolock.lost", "shared", "backup", 1)
		got.sum(t, "repolock.holding", "shared", "backup", 0)
		got.histogram(t, "repolock.held", "shared", "backup", 2, 74, 77)
		if spans := w.spans.Ended(); len(spans) != 2 || spans[1].Name() != "lock resumed" {
			t.Errorf("spans %v", spans)
		}
	})
}

// TestLostForGood: a lost lock ends once, even if it is released afterwards.
func TestLostForGood(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		lock, err := w.locker(t).Exclusive(t.Context(), "prune")
		must(t, err)
		w.away.Store(true)
		<-lock.Context().Done()
		w.away.Store(false)
		must(t, lock.Release(t.Context()))
		got := w.collect(t)
		got.sum(t, "repolock.lost", "exclusive", "prune", 1)
		got.sum(t, "repolock.holding", "exclusive", "prune", 0)
		got.histogram(t, "repolock.held", "exclusive", "prune", 1, 54, 56)
	})
}

// world is a store, the lockers on it, and what OpenTelemetry received.
type world struct {
	store.Store
	away    atomic.Bool
	observe *Observer
	lockers []*replock.Locker
	reader  *metric.ManualReader
	spans   *tracetest.SpanRecorder
}

func inBubble(t *testing.T, f func(*testing.T, *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{Store: mem.New(mem.Options{}), reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
		var err error
		w.observe, err = New(metric.NewMeterProvider(metric.WithReader(w.reader)), trace.NewTracerProvider(trace.WithSpanProcessor(w.spans)))
		must(t, err)
		f(t, w)
	})
}

func (w *world) locker(t *testing.T) *replock.Locker {
	t.Helper()
	l, err := replock.New(w, replock.Options{Observe: w.observe.Event, Clock: &clock{time.Now()}})
	must(t, err)
	w.lockers = append(w.lockers, l)
	return l
}

// flush waits until all events are recorded.
func (w *world) flush(t *testing.T) {
	for _, l := range w.lockers {
		l.Flush(t.Context())
	}
}

var errAway = errors.New("no route to host")

func (w *world) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if w.away.Load() {
		return store.Object{}, errAway
	}
	return w.Store.Put(ctx, key, body, opts)
}

// clock is the bubble's time.
type clock struct{ start time.Time }

func (c *clock) Now() time.Time                         { return time.Now() }
func (c *clock) Elapsed() time.Duration                 { return time.Since(c.start) }
func (c *clock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// collected are the metrics by their names.
type collected map[string]metricdata.Aggregation

func (w *world) collect(t *testing.T) collected {
	t.Helper()
	w.flush(t)
	var all metricdata.ResourceMetrics
	must(t, w.reader.Collect(t.Context(), &all))
	c := collected{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			c[m.Name] = m.Data
		}
	}
	return c
}

func of(mode, operation string) attribute.Set {
	return attribute.NewSet(attribute.String("repolock.mode", mode), attribute.String("repolock.operation", operation))
}

func (c collected) sum(t *testing.T, name, mode, operation string, want int64) {
	t.Helper()
	data, _ := c[name].(metricdata.Sum[int64])
	labels := of(mode, operation)
	for _, p := range data.DataPoints {
		if p.Attributes.Equals(&labels) {
			if p.Value != want {
				t.Errorf("%s of %s %s is %d, want %d", name, mode, operation, p.Value, want)
			}
			return
		}
	}
	t.Errorf("%s has nothing of %s %s: %v", name, mode, operation, c[name])
}

func (c collected) histogram(t *testing.T, name, mode, operation string, count uint64, least, most float64) {
	t.Helper()
	data, _ := c[name].(metricdata.Histogram[float64])
	labels := of(mode, operation)
	for _, p := range data.DataPoints {
		if p.Attributes.Equals(&labels) {
			if p.Count != count || p.Sum < least || p.Sum > most {
				t.Errorf("%s of %s %s: %d in %v s, want %d in %v to %v", name, mode, operation, p.Count, p.Sum, count, least, most)
			}
			return
		}
	}
	t.Errorf("%s has nothing of %s %s: %v", name, mode, operation, c[name])
}

func (c collected) none(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if c[name] != nil {
			t.Errorf("%s: %v", name, c[name])
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
