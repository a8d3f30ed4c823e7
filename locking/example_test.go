package locking_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/memory"
)

func ExampleGuard() {
	ctx := context.Background()
	backend := memory.New(nil) // or of another package below locking

	report := func(ctx context.Context) error {
		fmt.Println("reporting")
		// Another process, meanwhile.
		ran, err := locking.Guard(ctx, backend, locking.RequireGlobal, "report", time.Minute, nothing)
		fmt.Println("twice at once:", ran, err)
		return ctx.Err() // ctx ends if the lock is lost
	}
	ran, err := locking.Guard(ctx, backend, locking.RequireGlobal, "report", time.Minute, report)
	switch {
	case errors.Is(err, locking.ErrLost):
		fmt.Println("to be checked:", err) // perhaps it was only begun
	case err != nil:
		fmt.Println(err) // of the report, or of the backend
	case !ran:
		fmt.Println("another process reports")
	}
	// Output:
	// reporting
	// twice at once: false <nil>
}

func nothing(context.Context) error { return nil }

// A hint says what a job does if no backend is configured.
func ExampleGuard_hint() {
	ctx := context.Background()
	for _, hint := range []locking.Hint{locking.RequireGlobal, locking.PreferGlobal, locking.NodeLocal} {
		ran, err := locking.Guard(ctx, nil, hint, "report", time.Minute, nothing)
		fmt.Println(ran, err)
	}
	// Output:
	// false lock "report" is required, and no backend is configured: configure one
	// true <nil>
	// true <nil>
}

// TryLock is for a lock that is taken in one place and released in another. The holder must
// renew it, and stop its work when Renew returns ErrLost or the ttl is over.
func ExampleBackend() {
	ctx := context.Background()
	var backend locking.Backend = memory.New(nil)

	h, ok, err := backend.TryLock(ctx, "report", time.Minute)
	if err != nil {
		fmt.Println("broken:", err) // nothing is held
		return
	}
	if !ok {
		fmt.Println("held by another holder")
		return
	}
	fmt.Println("renewed:", backend.Renew(ctx, h)) // each third of the ttl
	fmt.Println("released:", backend.Release(ctx, h))
	fmt.Println(backend.Release(ctx, h))
	// Output:
	// renewed: <nil>
	// released: <nil>
	// lock "report": lock lost
}

// A person breaks the lock that was shown, and no newer one.
func ExampleBreaker() {
	ctx := context.Background()
	backend := memory.New(nil)
	first, _, _ := backend.TryLock(ctx, "nightly", time.Minute)
	shown, _ := backend.Inspect(ctx, "nightly")
	fmt.Println(shown.Key, shown.TTL)

	_ = backend.Release(ctx, first)
	second, _, _ := backend.TryLock(ctx, "nightly", time.Minute)
	fmt.Println(backend.Break(ctx, shown, false))
	fmt.Println(backend.Release(ctx, second))
	// Output:
	// nightly 1m0s
	// false <nil>
	// <nil>
}
