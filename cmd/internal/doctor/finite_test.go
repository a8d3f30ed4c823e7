package doctor_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestListingsEnd: a store whose listings have no end is unfit, and doctor doesn't ask it for
// ever.
func TestListingsEnd(t *testing.T) {
	for _, how := range hookstore.Ways {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &hookstore.Unending{Store: mem.New(mem.Options{}), How: how, Most: 20_000}
				r, err := doctor.Run(t.Context(), s, doctor.Options{Prefix: prefix, Locks: locks, Clock: bubble{start: time.Now()}})
				if !errors.Is(err, store.ErrListing) {
					t.Errorf("after %d pages: %v", s.Pages(), err)
				}
				fitness(t, r, doctor.Unfit)
			})
		})
	}
}
