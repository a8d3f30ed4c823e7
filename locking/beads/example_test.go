//go:build unix

package beads_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/repolock/repolock/locking/beads"
)

// A server asks before each cycle. During the second cycle a tool of this machine holds the lock, and before the last
// cycle a tool of another machine has left one.
func ExampleSkip() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	cycle := func() {
		skip, why, err := beads.Skip(ctx, dir)
		switch {
		case err != nil:
			fmt.Println("skipped, the lock can't be read:", err)
		case skip:
			fmt.Println("skipped") // a server logs why
		case why != "":
			fmt.Println(why, "- synchronized")
		default:
			fmt.Println("synchronized")
		}
	}

	cycle()
	tool, err := beads.Open(dir, beads.Options{})
	if err != nil {
		panic(err)
	}
	lock, held, err := tool.TryLock(ctx, beads.Key, time.Minute)
	if err != nil || !held {
		panic(err)
	}
	cycle()
	if err := tool.Release(ctx, lock); err != nil {
		panic(err)
	}
	cycle()
	foreign := `{"holder": "ci", "pid": 7, "hostname": "build.example", "started_at": "2026-01-02T03:04:05Z"}`
	if err := os.WriteFile(filepath.Join(dir, beads.Key), []byte(foreign), 0o644); err != nil {
		panic(err)
	}
	cycle()
	// Output:
	// synchronized
	// skipped
	// synchronized
	// skipped
}
