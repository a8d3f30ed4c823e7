package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
)

// TestLastWords: if a store says, within a moment of a request's end, why it failed, doctor
// reports that reason. It doesn't wait for a store that says nothing.
func TestLastWords(t *testing.T) {
	words := errors.New("the disk is asleep")
	for late, says := range map[time.Duration]bool{100 * time.Millisecond: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := tapped()
			s.Before(func(ctx context.Context, r hookstore.Request) error {
				<-ctx.Done()
				time.Sleep(late)
				return &store.Error{Op: r.Op, Key: r.Key, Err: errors.Join(words, ctx.Err())}
			})
			start := time.Now()
			_, err := doctor.Run(t.Context(), s, doctor.Options{Prefix: prefix, Locks: locks, Clock: bubble{start: start}})
			if errors.Is(err, words) != says || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within") {
				t.Errorf("%v late: %v", late, err)
			}
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("%v late: took %v", late, took)
			}
			time.Sleep(2 * time.Hour) // a later message is lost
		})
	}
}
