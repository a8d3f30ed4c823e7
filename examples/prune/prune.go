// Command prune deletes the packs that no snapshot names, under an exclusive lock: an
// example of a backup tool that takes its own lock with package replock.
//
//	prune [-wait 1h] REPOSITORY
//
// A snapshot, below snapshots/, is a list of the packs below packs/ that it needs, one on
// each line. A backup of such a tool puts packs first and its snapshot last, under a
// shared lock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prune:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, progress io.Writer) error {
	flags := flag.NewFlagSet("prune", flag.ContinueOnError)
	flags.SetOutput(progress)
	p := pruner{progress: progress, batch: 100}
	flags.DurationVar(&p.wait, "wait", 0, "how long to wait for other holders of the lock")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("usage: prune [-wait DURATION] REPOSITORY")
	}
	st, err := open.Store(ctx, flags.Arg(0))
	if err != nil {
		return err
	}
	deleted, err := p.prune(ctx, st)
	fmt.Fprintf(progress, "%d packs deleted\n", deleted)
	return err
}

// pruner is one prune.
type pruner struct {
	progress io.Writer
	wait     time.Duration
	batch    int // the packs that are deleted before the lock is renewed
	opts     replock.Options
}

// prune deletes the packs that no snapshot names, and returns how many it deleted. If the
// lock is lost it stops, and the error is a [*replock.LostError]. Then another tool might
// already use the repository, and the packs that are left are for the next prune.
func (p pruner) prune(ctx context.Context, st store.Store) (deleted int, err error) {
	p.opts.Observe = p.event
	locker, err := replock.New(st, p.opts)
	if err != nil {
		return 0, err
	}
	defer locker.Flush(context.WithoutCancel(ctx)) // events come a moment after they happen

	lock, err := locker.Exclusive(ctx, "prune", replock.WithWait(p.wait))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lock.Release(ctx)) }()

	work := lock.Context() // ends with the lock, and with ctx
	packs, err := unused(work, st)
	for err == nil && len(packs) > 0 {
		n := min(p.batch, len(packs))
		// Renew confirms that the lock is held, and starts each batch with a full lease.
		if err = lock.Refresh(work); err == nil {
			err = remove(work, st, packs[:n], &deleted)
		}
		packs = packs[n:]
	}
	if work.Err() != nil {
		return deleted, context.Cause(work) // the reason: lost, or ctx
	}
	if err != nil {
		return deleted, err
	}
	// Check reports a lock that was broken while the last batch ran.
	return deleted, lock.Check(work)
}

// event shows the holders that the prune waits for.
func (p pruner) event(e replock.Event) {
	if e.Kind != replock.EventWaiting {
		return
	}
	for _, holder := range e.Holders {
		fmt.Fprintf(p.progress, "waiting for %v, for %v\n", holder, e.Waited.Round(time.Second))
	}
}

// unused returns the packs that no snapshot names.
func unused(ctx context.Context, st store.Store) ([]string, error) {
	used := map[string]bool{}
	snapshots, err := store.Keys(ctx, st, "snapshots/")
	if err != nil {
		return nil, err
	}
	for _, key := range snapshots {
		body, _, err := st.Get(ctx, key, 16<<20)
		if err != nil {
			return nil, err // a snapshot that can't be read might need any pack
		}
		for line := range strings.Lines(string(body)) {
			used["packs/"+strings.TrimSpace(line)] = true
		}
	}
	packs, err := store.Keys(ctx, st, "packs/")
	if err != nil {
		return nil, err
	}
	var unused []string
	for _, key := range packs {
		if !used[key] {
			unused = append(unused, key)
		}
	}
	return unused, nil
}

// remove deletes one batch. Each deletion ends with ctx, which ends when the lock is lost.
func remove(ctx context.Context, st store.Store, packs []string, deleted *int) error {
	for _, key := range packs {
		if err := st.Delete(ctx, key); err != nil {
			return err
		}
		*deleted++
	}
	return nil
}
