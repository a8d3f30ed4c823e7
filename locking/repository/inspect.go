package repository

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// Inspect returns the lock that excludes others, shared or exclusive. Of several it prefers a held lock
// to a waiter's, a live lock to an unreadable one, and that to a stale one. Acquired is the holder's
// clock, Renewed the store's. Holder and Host can contain control characters.
//
// Stale is set if the ttl is over by two clocks. The end of the holder's process alone makes no lock
// stale, because a command that it has started can still run.
func (b *Backend) Inspect(ctx context.Context, key string) (*locking.Info, error) {
	found, err := b.status(ctx, key)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	i := slices.MinFunc(found, before)
	host, pid := process(i.Holder)
	info := &locking.Info{
		Key: key, Holder: i.Operation, Host: host, PID: pid,
		Acquired: i.Acquired, Renewed: i.ModTime, TTL: i.TTL,
		Stale: i.Verdict == replock.Stale, Revision: revision(i),
	}
	if i.State == replock.StateWaiting {
		info.Holder += " (waiting)"
	}
	if i.Verdict == replock.Unreadable {
		info.Trouble = i.Why
	}
	return info, nil
}

func (b *Backend) status(ctx context.Context, key string) ([]replock.Info, error) {
	if err := check(ctx, key); err != nil {
		return nil, err
	}
	locker, err := b.locker(key, replock.MaxTTL)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", key, err)
	}
	silent := b.store.Listen()
	found, err := locker.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", key, classed(err, silent()))
	}
	return found, nil
}

// before compares locks by Inspect's preference.
func before(a, b replock.Info) int {
	rank := func(i replock.Info) int {
		switch {
		case i.Verdict == replock.Stale:
			return 3
		case i.Verdict == replock.Unreadable:
			return 2
		case i.State == replock.StateWaiting:
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Acquired.Compare(b.Acquired), strings.Compare(a.Key(), b.Key()))
}

// process splits "HOST (pid PID)", the holder in a lock's body.
func process(holder string) (host string, pid int) {
	const between = " (pid "
	at := strings.LastIndex(holder, between)
	if at < 0 {
		return holder, 0
	}
	pid, err := strconv.Atoi(strings.TrimSuffix(holder[at+len(between):], ")"))
	if err != nil {
		return holder, 0
	}
	return holder[:at], pid
}

// revision returns the id of a lock, which is random and not secret. If the lock has no id, revision
// hashes everything that a reader sees.
func revision(i replock.Info) string {
	if i.ID != "" {
		return i.ID
	}
	seen := sha256.New()
	fmt.Fprintf(seen, "%q %q %s %s\n", i.Keys, i.Holder, i.Acquired.Format(time.RFC3339Nano), i.ModTime.Format(time.RFC3339Nano))
	seen.Write(i.Body)
	return hex.EncodeToString(seen.Sum(nil)[:16])
}

// Break removes the lock that Inspect has described. If stale is set, it removes the lock only if its ttl
// is over by two clocks. The holder runs on until its next look or refresh: see Options.Look.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	if err := check(ctx, seen.Key); err != nil {
		return false, err
	}
	locker, err := b.locker(seen.Key, replock.MaxTTL)
	if err != nil {
		return false, fmt.Errorf("lock %q: %w", seen.Key, err)
	}
	silent := b.store.Listen()
	failed := func(err error) (bool, error) {
		return false, fmt.Errorf("lock %q wasn't broken: %w", seen.Key, classed(err, silent()))
	}
	shown, err := locker.Break(ctx, replock.BreakOptions{DryRun: true})
	if err != nil {
		return failed(err)
	}
	shown = slices.DeleteFunc(shown, func(one replock.Broken) bool { return revision(one.Info) != seen.Revision })
	if len(shown) == 0 {
		return false, nil
	}
	broken, err := locker.Break(ctx, replock.BreakOptions{Stale: stale, Shown: shown})
	if err != nil {
		return failed(err)
	}
	return len(broken) > 0, nil
}
