package replock

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// A client of the original protocol looks, and then writes some requests later: see enter. The window is the time from
// the answer to our put until such a client has written, if it looked before that put.
const (
	// leastWindow is added to the round trip of a look, because on a fast store a process needs longer than a request, and
	// MinIO lets the second of two puts under one key wait for up to 50 ms, and mostly once more at worst (lockLoop of its
	// package lsync): 104 ms was the most in 600 races with Cloudstic.
	leastWindow = 125 * time.Millisecond
	// mostWindow bounds the window. On a store that answers within 700 ms it is enough for the reads of six leftovers. A
	// short ttl has no room for it, so a sixth of the ttl is a bound, too.
	mostWindow = 7 * time.Second
	// ownRequests is the number of requests that an original client sends from its first look to its write, without the
	// reads of the shared flags: a LIST and a PUT.
	ownRequests = 2
)

// Beside returns the Beside of the Locker's options, or the Beside that it has found out since. A caller can remember
// the result for the next Locker.
func (l *Locker) Beside() Beside {
	known, _ := l.neighbours.state()
	return known
}

// original reports whether a client of the original protocol can see this lock. Such a client looks only below index/.
func (l *Locker) original() bool {
	return l.opts.Name == "" && strings.HasSuffix(l.opts.Prefix, DefaultPrefix)
}

// inquire starts to find out whether the repository is Cloudstic's, unless that is known. It doesn't wait.
func (l *Locker) inquire(ctx context.Context) {
	n := &l.neighbours
	n.mu.Lock()
	defer n.mu.Unlock()
	if !l.original() || n.known != BesideUnknown || n.asking != nil {
		return
	}
	n.asking = make(chan struct{})
	go func() {
		found := l.whose(ctx)
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.known == BesideUnknown {
			n.known = found
		}
		close(n.asking)
		n.asking = nil
	}()
}

// whose returns whether the repository is Cloudstic's, or BesideUnknown if it is empty or a request fails. Each request
// is sent once. Cloudstic refuses a repository without its config, which is JSON. A client that brings its own key
// doesn't need the config, but has objects below index/.
func (l *Locker) whose(ctx context.Context) Beside {
	root := strings.TrimSuffix(l.opts.Prefix, DefaultPrefix)
	config, err := once(ctx, "get "+root+"config", l.fetch(root+"config"))(l.times.Timeout)
	switch {
	case err == nil && isJSON(config.raw):
		return BesideCloudstic
	case err == nil, errors.Is(err, store.ErrTooLarge):
		return BesideNobody
	case !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrIrregular):
		return BesideUnknown
	}
	var page store.Page
	var others bool
	var errs [2]error
	parallel.Each(len(errs), len(errs), func(i int) {
		if i == 0 {
			page, errs[i] = once(ctx, "list "+l.opts.Prefix, func(ctx context.Context) (store.Page, error) { return l.page(ctx, l.opts.Prefix, "") })(l.times.Timeout)
			return
		}
		others, errs[i] = once(ctx, "list "+root, func(ctx context.Context) (bool, error) {
			others, _, err := store.HasOther(ctx, l.store, l.opts.Prefix+"lock")
			return others, err
		})(l.times.Timeout)
	})
	if errs[0] != nil || errs[1] != nil {
		return BesideUnknown
	}
	for _, o := range page.Objects {
		name := strings.TrimPrefix(o.Key, l.opts.Prefix)
		switch {
		case strings.HasPrefix(name, "lock"), wire.IsStray(name):
		case isHash(name):
		default:
			return BesideCloudstic
		}
	}
	if !others {
		return BesideUnknown
	}
	return BesideNobody
}

// isJSON reports whether a body is a JSON object.
func isJSON(raw []byte) bool {
	var fields map[string]json.RawMessage
	return json.Unmarshal(raw, &fields) == nil
}

// isHash reports whether a name is a SHA-256 in hex, as restic's are below index/.
func isHash(name string) bool {
	return len(name) == 64 && strings.Trim(name, "0123456789abcdef") == ""
}

// window returns how long after the answer to our put an original client can still write if it looked before the put.
// Such a client reads the shared flags one after another. The last request of the look shows how fast the store and
// this machine are now. A quarter is added, because another machine's requests can last longer.
func (l *Locker) window(t *attempt) time.Duration {
	trip := max(t.trips.slowest(), t.lasted)
	requests := ownRequests + time.Duration(t.passes)
	return min(max(requests*trip*5/4, trip+leastWindow), mostWindow, l.opts.TTL/6)
}

// outwait is called after a look that found no conflict. It returns false if that look can grant the lock. Otherwise it
// waits until the window is over, and returns true: the acquirer must look again. The wait ends early if the inquiry
// finds that the repository isn't Cloudstic's.
func (l *Locker) outwait(ctx context.Context, t *attempt) (again bool, err error) {
	now := l.opts.Clock.Elapsed()
	if t.stood == 0 { // the put had no answer, and a look has shown the object
		t.stood = now
	}
	end := t.stood + l.window(t)
	for {
		known, asking := l.neighbours.state()
		if !l.original() || known == BesideNobody || t.seen.Elapsed >= end {
			return false, nil
		}
		woken, err := clock.SleepUntil(ctx, l.opts.Clock, end-l.opts.Clock.Elapsed(), asking)
		if err != nil || !woken {
			return err == nil, err
		}
	}
}

// unlisted is the assumed number of shared flags if the look hasn't read all pages.
const unlisted = 1000

// notePage notes two facts about a page of a look: how many shared flags an original client reads, and whether the name
// of a flag shows that an original client wrote it.
func (l *Locker) notePage(t *attempt, page store.Page, complete bool) {
	for _, o := range page.Objects {
		switch {
		case !l.keys.BehindIntents(o.Key) || l.keys.Kind(o.Key) != wire.KindShared || t.owns(o):
		case o.Size > 0 && !wire.IsPlace(wire.Place(o.Key)):
			l.neighbours.met()
			fallthrough
		default:
			t.listed.flags++
		}
	}
	if complete && page.Next != "" {
		t.listed.flags = unlisted
	}
	t.passes = max(t.passes, t.listed.flags)
}
