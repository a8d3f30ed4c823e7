// Package otel passes the events of locks to OpenTelemetry: an example for
// replock.Options.Observe.
//
//	observe, err := otel.New(meterProvider, tracerProvider)
//	locker, err := replock.New(st, replock.Options{Observe: observe.Event})
//
// One Observer can serve any number of lockers. After Locker.Flush its metrics and spans are
// complete.
package otel

import (
	"context"
	"errors"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/repolock/repolock/replock"
)

const scope = "github.com/repolock/repolock/examples/otel"

// Observer counts the events of locks, and has a span for each held lock.
type Observer struct {
	tracer trace.Tracer

	wait      metric.Float64Histogram
	held      metric.Float64Histogram
	holding   metric.Int64UpDownCounter
	refreshes metric.Int64Counter
	failures  metric.Int64Counter
	blocked   metric.Int64Counter
	lost      metric.Int64Counter
	resumed   metric.Int64Counter

	mu    sync.Mutex
	locks map[string]trace.Span // of those that are held, by their ids
}

// New makes an Observer. Its spans are roots: an event knows of no context.
func New(meters metric.MeterProvider, tracers trace.TracerProvider) (*Observer, error) {
	m := meters.Meter(scope)
	var errs []error
	histogram := func(name, says string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(says),
			metric.WithExplicitBucketBoundaries(0.01, 0.1, 1, 10, 60, 600, 3600, 4*3600, 24*3600))
		errs = append(errs, err)
		return h
	}
	counter := func(name, says string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithDescription(says))
		errs = append(errs, err)
		return c
	}
	holding, err := m.Int64UpDownCounter("repolock.holding", metric.WithDescription("Locks that are held."))
	errs = append(errs, err)
	o := &Observer{
		tracer:    tracers.Tracer(scope),
		wait:      histogram("repolock.wait", "How long it took until a lock was held or refused."),
		held:      histogram("repolock.held", "How long a lock was held, until it was released or lost."),
		holding:   holding,
		refreshes: counter("repolock.refreshes", "Refreshes that were answered."),
		failures:  counter("repolock.refresh_failures", "Refreshes that were not."),
		blocked:   counter("repolock.blocked", "Locks that were refused because somebody else held them."),
		lost:      counter("repolock.lost", "Locks that were lost."),
		resumed:   counter("repolock.resumed", "Lost locks that were resumed."),
		locks:     map[string]trace.Span{},
	}
	return o, errors.Join(errs...)
}

// Event is what replock.Options.Observe wants.
func (o *Observer) Event(e replock.Event) {
	ctx := context.Background()
	// An id is in the spans alone: there would be a time series for each lock.
	attrs := []attribute.KeyValue{
		attribute.String("repolock.mode", e.Mode.String()),
		attribute.String("repolock.operation", valid(e.Operation)),
	}
	labels := metric.WithAttributes(attrs...)
	switch e.Kind {
	case replock.EventAcquired:
		o.wait.Record(ctx, e.Waited.Seconds(), labels)
		o.begin(ctx, e, attrs, labels)
	case replock.EventBlocked:
		o.wait.Record(ctx, e.Waited.Seconds(), labels)
		o.blocked.Add(ctx, 1, labels)
	case replock.EventRefreshed:
		o.refreshes.Add(ctx, 1, labels)
	case replock.EventRefreshFailed:
		o.failures.Add(ctx, 1, labels)
		o.note(e)
	case replock.EventGaveUp:
		o.note(e)
	case replock.EventLost:
		if e.Ended { // a failed resume reports the loss again
			o.lost.Add(ctx, 1, labels)
		}
	case replock.EventResumed: // under a new id
		o.resumed.Add(ctx, 1, labels)
		o.begin(ctx, e, attrs, labels)
	}
	if e.Ended {
		o.end(ctx, e, labels)
	}
}

func (o *Observer) begin(ctx context.Context, e replock.Event, attrs []attribute.KeyValue, labels metric.MeasurementOption) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, span := o.tracer.Start(ctx, "lock "+string(e.Kind), trace.WithTimestamp(e.Time), trace.WithNewRoot(),
		trace.WithAttributes(append(attrs, attribute.String("repolock.id", e.ID), attribute.String("repolock.key", e.Key))...))
	o.locks[e.ID] = span
	o.holding.Add(ctx, 1, labels)
}

// note puts what went wrong into the lock's span.
func (o *Observer) note(e replock.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if span, ok := o.locks[e.ID]; ok {
		span.AddEvent(string(e.Kind), trace.WithTimestamp(e.Time), trace.WithAttributes(
			attribute.Int("repolock.failures", e.Failures), attribute.String("repolock.error", text(e.Err))))
	}
}

// end ends a lock's span.
func (o *Observer) end(ctx context.Context, e replock.Event, labels metric.MeasurementOption) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held.Record(ctx, e.Held.Seconds(), labels)
	o.holding.Add(ctx, -1, labels)
	if span, ok := o.locks[e.ID]; ok {
		delete(o.locks, e.ID)
		if e.Err != nil {
			span.SetStatus(codes.Error, text(e.Err))
		}
		span.End(trace.WithTimestamp(e.Time))
	}
}

// text returns an error's text, or "". The error can come from a store, and has no credentials:
// replock's errors are made to be printed.
func text(err error) string {
	if err == nil {
		return ""
	}
	return valid(err.Error())
}

// valid makes a text fit for OTLP, which carries only UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
