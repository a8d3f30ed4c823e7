package otel

import (
	"context"
	"errors"
	"slices"
	"strings"
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

	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// TestHeld: a prune holds the lock for 100 s, in which it is refreshed each 30 s; a backup
// is refused, and another one waits.
func TestHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		prune, err := w.locker(t).TryExclusive(t.Context(), "prune")
		must(t, err)
		backups := w.locker(t)
		if _, err := backups.TryShared(t.Context(), "backup"); !errors.Is(err, replock.ErrHeld) {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(100 * time.Second)
			must(t, prune.Release(t.Context()))
		}()
		backup, err := backups.Shared(t.Context(), "backup")
		must(t, err)
		w.want(t, map[string]figure{
			"refreshes exclusive prune": {n: 4}, "blocked shared backup": {n: 1}, "holding exclusive prune": {n: 0}, "holding shared backup": {n: 1},
			"held exclusive prune": {1, 100, 103}, // the first backup looks again for 2 s
			"wait exclusive prune": {1, 0, 1},
			"wait shared backup":   {2, 100, 118}, // soon, and after a poll
		}, "lost", "refresh_failures", "resumed")

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

// TestLost: the store is away for too long, and a shared lock is resumed when it is back. An exclusive
// one, which isn't, ends once, even if it is released afterwards.
func TestLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		lock, err := w.locker(t).TryShared(t.Context(), "backup")
		must(t, err)
		w.away.Store(true)
		<-lock.Context().Done()
		w.want(t, map[string]figure{
			"lost shared backup": {n: 1}, "refresh_failures shared backup": {n: 3}, "holding shared backup": {n: 0},
			"held shared backup": {1, 54, 56}, // until the deadline
		})
		spans := w.spans.Ended()
		if len(spans) != 1 || spans[0].Status().Code != codes.Error || len(spans[0].Events()) != 4 { // and an event that it gave up
			t.Fatalf("spans %v", spans)
		}

		w.away.Store(false)
		must(t, lock.Resume(t.Context()))
		time.Sleep(20 * time.Second)
		must(t, lock.Release(t.Context()))
		w.want(t, map[string]figure{
			"resumed shared backup": {n: 1}, "lost shared backup": {n: 1}, "holding shared backup": {n: 0}, "held shared backup": {2, 74, 77},
		})
		if spans := w.spans.Ended(); len(spans) != 2 || spans[1].Name() != "lock resumed" {
			t.Errorf("spans %v", spans)
		}

		prune, err := w.locker(t).TryExclusive(t.Context(), "prune")
		must(t, err)
		w.away.Store(true)
		<-prune.Context().Done()
		w.away.Store(false)
		must(t, prune.Release(t.Context()))
		w.want(t, map[string]figure{"lost exclusive prune": {n: 1}, "holding exclusive prune": {n: 0}, "held exclusive prune": {1, 54, 56}})
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
		w := &world{Store: memory.New(memory.Options{}), reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
		var err error
		w.observe, err = New(metric.NewMeterProvider(metric.WithReader(w.reader)), trace.NewTracerProvider(trace.WithSpanProcessor(w.spans)))
		must(t, err)
		f(t, w)
	})
}

func (w *world) locker(t *testing.T) *replock.Locker {
	t.Helper()
	l, err := replock.New(w, replock.Options{Observe: w.observe.Event, Clock: leapclock.New()})
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

// figure is a number of things, or of times that take this many seconds together.
type figure struct {
	n           int64
	least, most float64
}

// want compares figures by metric, mode and operation, the only attributes. None have the metrics that none names.
func (w *world) want(t *testing.T, want map[string]figure, none ...string) {
	t.Helper()
	w.flush(t)
	var all metricdata.ResourceMetrics
	must(t, w.reader.Collect(t.Context(), &all))
	got := map[string]figure{}
	add := func(name string, labels attribute.Set, n int64, seconds float64) {
		mode, _ := labels.Value("repolock.mode")
		operation, _ := labels.Value("repolock.operation")
		if name = strings.TrimPrefix(name, "repolock."); slices.Contains(none, name) {
			t.Errorf("there is %s", name)
		}
		point := name + " " + mode.AsString() + " " + operation.AsString()
		if _, twice := got[point]; twice || labels.Len() != 2 {
			t.Errorf("%s is there twice, or has other attributes: %v", point, labels.ToSlice())
		}
		got[point] = figure{n, seconds, seconds}
	}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			sum, _ := m.Data.(metricdata.Sum[int64])
			for _, p := range sum.DataPoints {
				add(m.Name, p.Attributes, p.Value, 0)
			}
			times, _ := m.Data.(metricdata.Histogram[float64])
			for _, p := range times.DataPoints {
				add(m.Name, p.Attributes, int64(p.Count), p.Sum)
			}
		}
	}
	for name, is := range want {
		if f, ok := got[name]; !ok || f.n != is.n || f.least < is.least || f.most > is.most {
			t.Errorf("%s: %+v, want %+v", name, f, is)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
