package serial

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestQueue: functions run in order, also those that a running one adds. Flush waits only for
// those before it, and no longer than its context.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		var ran []int
		q.Add(func() {
			time.Sleep(time.Hour)
			ran = append(ran, 1)
			q.Add(func() { ran = append(ran, 3) })
		})
		q.Add(func() { ran = append(ran, 2) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if q.Flush(ctx); time.Since(start) != time.Second {
			t.Error("Flush waits longer than its context")
		}
		if q.Flush(t.Context()); time.Since(start) != time.Hour {
			t.Error("Flush returns before the functions have")
		}
		if q.Flush(t.Context()); !slices.Equal(ran, []int{1, 2, 3}) {
			t.Errorf("they ran as %v", ran)
		}
	})
}
