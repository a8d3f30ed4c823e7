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

// TestLastWords: what a store says of a request that was given up, a moment later, is the
// reason that is given; one that says nothing isn't waited for.
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
			time.Sleep(2 * time.Hour) // what it says then is heard by none
		})
	}
}
