package replock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/mem"
)

func Example() {
	ctx := context.Background()
	st := mem.New(mem.Options{}) // or open.Store(ctx, "/srv/backups")
	locker, err := replock.New(st, replock.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}

	lock, err := locker.Exclusive(ctx, "prune")
	if err != nil {
		fmt.Println(err) // a *replock.HeldError, or the store's
		return
	}
	defer lock.Release(ctx)

	// Somebody else, meanwhile.
	_, err = locker.Shared(ctx, "backup")
	fmt.Println("backup is refused:", errors.Is(err, replock.ErrHeld))

	// The work stops when its context ends: if the lock is lost, in time.
	prune := func(ctx context.Context) error {
		// Before a batch that must not be done without the lock:
		if err := lock.Check(ctx); err != nil {
			return err
		}
		fmt.Println("pruning under an", lock.Mode(), "lock")
		return ctx.Err()
	}
	if err := prune(lock.Context()); err != nil {
		fmt.Println(err, context.Cause(lock.Context()))
	}
	// Output:
	// backup is refused: true
	// pruning under an exclusive lock
}

func ExampleHeldError() {
	ctx := context.Background()
	locker, err := replock.New(mem.New(mem.Options{}), replock.Options{Metadata: map[string]string{"job": "nightly"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	lock, err := locker.Shared(ctx, "backup")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lock.Release(ctx)

	_, err = locker.Exclusive(ctx, "prune")
	var held *replock.HeldError
	if errors.As(err, &held) {
		for _, h := range held.Holders {
			fmt.Println(h.Mode, replock.Printable(h.Operation), h.Metadata["job"])
		}
	}
	// Output: shared backup nightly
}
