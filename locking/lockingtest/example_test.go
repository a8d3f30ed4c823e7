package lockingtest_test

import (
	"fmt"
	"testing"

	"github.com/repolock/repolock/internal/test/example"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
	"github.com/repolock/repolock/locking/memory"
)

// A backend's test calls Run. Here the backend is locking/memory, and the test is run by the example. All clients
// share one backend, because no other keeps its locks.
func ExampleRun() {
	testConformance := func(t *testing.T) { // in a backend's package: func TestConformance(t *testing.T)
		backend := memory.New(nil)
		lockingtest.Run(t, lockingtest.Config{
			New:     func(*testing.T) locking.Backend { return backend },
			BadKeys: []string{""},
			Expires: true,
			Bubble:  true, // no wait takes time, because the backend reads the bubble's clock
		})
	}
	fmt.Println(example.Passes(testConformance))
	// Output: true
}
