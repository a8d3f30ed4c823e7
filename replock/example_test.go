package replock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/memory"
)

func Example() {
	ctx := context.Background()
	st := memory.New(memory.Options{}) // or open.Store(ctx, "/srv/backups")
	locker, err := replock.New(st, replock.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The work stops when its context ends: with ctx, and in time if the lock is lost.
	prune := func(ctx context.Context) error {
		fmt.Println("pruning")
		// Another process, meanwhile.
		_, err := locker.TryShared(ctx, "backup")
		fmt.Println("a backup is refused:", errors.Is(err, replock.ErrHeld))
		return ctx.Err()
	}
	switch err := locker.Do(ctx, replock.Exclusive, "prune", prune, replock.WithWait(time.Minute)); {
	case errors.Is(err, replock.ErrHeld):
		fmt.Println("not pruned:", err) // the error names the holder
	case errors.Is(err, replock.ErrLost):
		fmt.Println("to be checked:", err) // perhaps it was only begun
	case err != nil:
		fmt.Println(err)
	}
	// Output:
	// pruning
	// a backup is refused: true
}

// Exclusive and Shared return the lock, for what is begun in one place and ended in another.
func ExampleLocker_Exclusive() {
	locker, err := replock.New(memory.New(memory.Options{}), replock.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	running := context.Background() // ends when the program is to end

	// This bounds the acquire alone.
	ctx, cancel := context.WithTimeout(running, time.Minute)
	lock, err := locker.Exclusive(ctx, "prune", replock.WithParent(running))
	cancel()
	if err != nil {
		fmt.Println(err) // a *replock.HeldError, or the store's
		return
	}
	defer lock.Release(running)

	// The protected work stops when lock.Context() ends. Before a batch that must not
	// be done without the lock:
	if err := lock.Refresh(lock.Context()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("pruning under an", lock.Mode(), "lock:", lock.Left() > 0)
	// Output: pruning under an exclusive lock: true
}

func ExampleHeldError() {
	ctx := context.Background()
	locker, err := replock.New(memory.New(memory.Options{}), replock.Options{Metadata: map[string]string{"job": "nightly"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	lock, err := locker.TryShared(ctx, "backup")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lock.Release(ctx)

	_, err = locker.TryExclusive(ctx, "prune")
	var held *replock.HeldError
	if errors.As(err, &held) {
		for _, h := range held.Holders {
			fmt.Printf("%s %q %q\n", h.Mode, h.Operation, h.Metadata["job"])
		}
	}
	// Output: shared "backup" "nightly"
}
