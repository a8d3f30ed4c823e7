package storetest_test

import (
	"fmt"
	"testing"

	"github.com/repolock/repolock/internal/test/example"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
	"github.com/repolock/repolock/store/storetest"
)

// A backend's test calls Run. Here the backend is store/memory, and the test is run by the example.
func ExampleRun() {
	testContract := func(t *testing.T) { // in a backend's package: func TestContract(t *testing.T)
		storetest.Run(t, storetest.Config{
			New:   func(*testing.T) store.Store { return memory.New(memory.Options{}) },
			Light: true,
		})
	}
	fmt.Println(example.Passes(testContract))
	// Output: true
}
