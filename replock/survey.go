package replock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
)

// Mode is shared or exclusive.
type Mode int

const (
	// Shared locks can be held side by side: backup, restore.
	Shared Mode = iota + 1
	// An Exclusive lock is held alone: prune.
	Exclusive
)

// String returns "shared" or "exclusive".
func (m Mode) String() string {
	words := [...]string{Shared: "shared", Exclusive: "exclusive"}
	if m < Shared || m > Exclusive {
		return fmt.Sprintf("Mode(%d)", int(m))
	}
	return words[m]
}

// MarshalText returns String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Verdict is the judgement of a lock by a process that doesn't own it.
type Verdict int

const (
	// Live: its ttl isn't over by the store's clock, or by this machine's if the store has none; or it
	// was refreshed while it was watched.
	Live Verdict = iota + 1
	// Stale: its ttl is over by two clocks, or it was watched for its whole ttl and didn't change.
	// The next acquirer that conflicts with it removes it.
	Stale
	// Doubtful: its ttl is over by one clock, and no second clock confirms that. It counts as held until
	// it has been watched for its whole ttl.
	Doubtful
	// Unreadable: its body can't be read or parsed. It counts as held until
	// break-lock.
	Unreadable
	// Released: its body is empty. Its holder wasn't allowed to delete it.
	Released
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	words := [...]string{Live: "live", Stale: "stale", Doubtful: "doubtful", Unreadable: "unreadable", Released: "released"}
	if v < Live || v > Released {
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
	return words[v]
}

// MarshalText returns String.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Info describes a lock in the store. Its texts come from the client that wrote the lock, and can
// contain control characters, so print them with %q.
type Info struct {
	Mode Mode
	// Keys are the keys of the lock's objects. An exclusive lock has two.
	Keys []string
	// ID is empty for locks of clients that don't follow this protocol. AcquiredID is the id with
	// which a resumed lock was first acquired, or else empty.
	ID, AcquiredID string
	// Operation, Holder, State, User, Version and Metadata are fields of the body. A text is cut at
	// 1 KiB, and Metadata of more than 4 KiB is omitted.
	Operation, Holder, User, Version string
	State                            State
	Metadata                         map[string]string
	// Body is the stored body. It is nil if it wasn't read, if it has changed since, or if the
	// bodies of the locks before this one exceed 4 MiB. It must not be modified.
	Body []byte
	// Acquired and Expires are times on the holder's wall clock.
	Acquired, Expires time.Time
	TTL               time.Duration
	// ModTime is the time of the last refresh on the store's clock.
	ModTime time.Time
	// Age is the time since the last refresh, and Left the time until the lock expires, negative if
	// it has expired. If StoreClock is true they are lower bounds by the store's clock; otherwise
	// they are by this machine's wall clock.
	Age, Left  time.Duration
	StoreClock bool
	Verdict    Verdict
	// Why is the reason of the verdict Doubtful or Unreadable.
	Why string
	// ProcessGone: the holder was a process of this machine and boot, and no longer exists.
	ProcessGone bool

	object store.Object
}

// identity distinguishes a lock from a later one under the same key: by the id, or else by holder
// and time of acquire, as other clients do. An unreadable lock is distinguished by its object.
func (i Info) identity() string {
	switch {
	case i.ID != "":
		return "id " + i.ID
	case i.Verdict == Unreadable:
		return "etag " + i.object.ETag
	default:
		return "holder " + i.Holder + i.Acquired.String()
	}
}

// Key returns the first of Keys.
func (i Info) Key() string { return i.Keys[0] }

// String describes the lock in one line, for errors: its holder, operation, start and last refresh.
func (i Info) String() string {
	if i.Verdict == Unreadable {
		does := "removes it"
		if store.CheckKey(i.Key()) != nil {
			does = "prints how to delete it"
		}
		return fmt.Sprintf("%s lock %s can't be read (%s); if no operation is running, break-lock %s",
			i.Mode, text.Brief(i.Key()), text.Brief(i.Why), does)
	}
	if i.Holder == "" && i.Why != "" {
		return fmt.Sprintf("%s lock %s, which can't be read just now (%s)", i.Mode, text.Brief(i.Key()), text.Brief(i.Why))
	}
	s := fmt.Sprintf("%s lock of %s", i.Mode, text.Or(i.Holder, "unknown"))
	if i.State == StateWaiting {
		s += ", waiting"
	}
	s += fmt.Sprintf(", operation %s", text.Or(i.Operation, "unknown"))
	if !i.Acquired.IsZero() {
		s += ", since " + i.Acquired.UTC().Format(time.RFC3339)
	}
	switch {
	case i.Verdict == Doubtful:
		s += ", perhaps stale: " + text.Brief(i.Why)
	case i.ProcessGone:
		s += ", whose process is gone, expires in " + text.Duration(i.Left)
	case !i.ModTime.IsZero() || !i.Expires.IsZero():
		s += ", last seen " + text.Ago(max(i.Age, 0))
	}
	return s + " (" + text.Brief(i.Key()) + ")"
}

// Status returns all locks in the repository except released ones, exclusive ones first. It costs one
// list per page, and one get per lock whose body isn't on the page. It never writes, so it knows the
// store's time only if listings have it: see Info.StoreClock. An error means that the locks couldn't be
// listed. A lock that can't be read is an Info with the verdict Unreadable.
func (l *Locker) Status(ctx context.Context) ([]Info, error) {
	entries, st, err := l.survey(ctx)
	if err != nil {
		return nil, err
	}
	infos := l.surveyed(entries, st)
	return slices.DeleteFunc(infos, func(i Info) bool { return i.Verdict == Released }), nil
}

// surveyed returns the locks of a survey. It judges each as of the time when it was listed.
func (l *Locker) surveyed(entries []*entry, st storeTime) []Info {
	infos := make([]Info, 0, len(entries))
	for _, e := range entries {
		if errors.Is(e.err, errVanished) {
			continue
		}
		if errors.Is(e.err, errUnread) {
			e.verdict, e.why = Unreadable, e.err.Error()
		} else {
			l.judge(e, st, e.shown)
		}
		i := l.info(e, st, e.shown)
		if !i.StoreClock && i.Verdict == Live && i.Left < -margin {
			i.Verdict, i.Why = Doubtful, "this machine's clock says that it has expired, and the store doesn't report its time"
		}
		infos = append(infos, i)
	}
	return merge(infos)
}

// survey lists and reads every lock object, page by page.
func (l *Locker) survey(ctx context.Context) ([]*entry, storeTime, error) {
	var st storeTime
	var entries []*entry
	var kept bodies
	s := memory{}
	for cursor := ""; ; {
		sent := l.opts.Clock.Elapsed()
		page, err := l.list(ctx, l.keys.all(), cursor)
		if err != nil {
			return nil, st, fault.While("listing the locks", err)
		}
		answered := l.opts.Clock.Elapsed()
		if !page.Now.IsZero() {
			st = storeTime{page.Now, answered}
		}
		before := len(entries)
		entries = slices.Grow(entries, len(page.Objects))
		for _, o := range page.Objects {
			if k := l.keys.kind(o.Key); k != kindUnknown {
				e := s.see(o, k, answered)
				e.shown = sent
				entries = append(entries, e)
			}
		}
		for batch := range slices.Chunk(entries[before:], readBatch) {
			adopt(page, batch) // kept bounds the bodies in memory
			l.readAll(ctx, batch, false, nil)
			for _, e := range batch {
				kept.add(e)
			}
		}
		if cursor = page.Next; cursor == "" {
			return entries, st, ctx.Err()
		}
	}
}

// BreakOptions selects the locks that Break removes. The zero value selects all.
type BreakOptions struct {
	// Stale selects the locks that are certainly stale.
	Stale bool
	// Doubtful makes Stale include Doubtful locks that have expired by one clock. Only a watch for their
	// whole ttl would make that certain, so a person must decide.
	Doubtful bool
	// Dead selects the locks whose holder was a process of this machine and boot that no longer
	// exists: see Info.ProcessGone. A command that the process ran might live on, unless repolock's
	// guard ended it.
	Dead bool
	// ID selects the lock with this id.
	ID string
	// Shown selects locks that an earlier Break has returned, so that a lock that wasn't shown is
	// not broken: lock.exclusive can be another holder's by now.
	Shown []Broken
	// DryRun makes Break return the locks that it would remove, and remove none.
	DryRun bool
}

// selects reports whether the options other than Shown select a lock.
func (o BreakOptions) selects(i Info) bool {
	stale := i.Verdict == Stale || i.Verdict == Released || o.Doubtful && i.Verdict == Doubtful && i.Left < 0
	return (!o.Stale || stale) && (!o.Dead || i.ProcessGone) && (o.ID == "" || i.ID == o.ID)
}

// Broken is a lock that Break removed. If Err is set, Break failed to remove it.
type Broken struct {
	Info
	Err error
}

// Break removes locks in an emergency, whatever their age and holder. A holder runs on until its next
// look, and stops then. Break costs a Status and one delete per object, and with Stale one more list per
// object. If listings don't have the store's time, Stale also costs a put, a list and a delete.
//
// It returns every lock that it removed or tried to remove. The error joins the failures, each of
// which names its key. If no lock is selected, Break returns no error.
func (l *Locker) Break(ctx context.Context, opts BreakOptions) ([]Broken, error) {
	entries, st, err := l.survey(ctx)
	if err != nil {
		return nil, err
	}
	if opts.Stale && !st.known() && len(entries) > 0 {
		if st, err = l.probeTime(ctx); err != nil {
			return nil, err
		}
	}
	type name struct{ key, lock string }
	shown := map[name]bool{}
	for _, b := range opts.Shown {
		for _, key := range b.Keys {
			shown[name{key, b.identity()}] = true
		}
	}
	if opts.Stale {
		entries = slices.DeleteFunc(entries, func(e *entry) bool { return errors.Is(e.err, errReleased) && e.unfinished(st, e.shown) })
	}
	var broken []Broken
	for _, i := range l.surveyed(entries, st) {
		if !opts.selects(i) {
			continue
		}
		if len(shown) > 0 {
			i.Keys = slices.DeleteFunc(i.Keys, func(key string) bool { return !shown[name{key, i.identity()}] })
		}
		if len(i.Keys) > 0 {
			broken = append(broken, Broken{Info: i})
		}
	}
	if opts.DryRun {
		return broken, nil
	}
	each(broken, func(i int, _ Broken) { l.breakLock(ctx, &broken[i], opts.Stale, entries) })
	broken = slices.DeleteFunc(broken, func(b Broken) bool { return len(b.Keys) == 0 })
	var errs []error
	for _, b := range broken {
		errs = append(errs, b.Err)
	}
	return broken, fault.Join(errs...)
}

// breakLock removes the objects of a lock. With stale set it spares an object that was written or
// deleted since it was listed.
func (l *Locker) breakLock(ctx context.Context, b *Broken, stale bool, listed []*entry) {
	b.Keys = slices.DeleteFunc(b.Keys, func(key string) bool {
		again, err := false, error(nil)
		if stale {
			again, err = l.refreshed(ctx, key, listed)
		}
		if err == nil && !again {
			err = l.remove(ctx, key)
		}
		if errors.Is(err, store.ErrInvalidKey) {
			err = fault.Errorf("only the store's own tools can remove it (aws s3 rm, mc rm, b2 rm): %w", err)
		}
		if err != nil {
			b.Err = fault.Join(b.Err, fault.While("still there", err))
		}
		return again
	})
}

// refreshed reports whether an object was written or deleted since it was listed. Break might have
// been stopped since then, or the store slow. Meanwhile the holder of a stale lock can have come
// back from a pause that its clocks don't count.
func (l *Locker) refreshed(ctx context.Context, key string, listed []*entry) (bool, error) {
	now, err := l.find(ctx, key)
	if err != nil || now == nil {
		return err == nil, err
	}
	return !slices.ContainsFunc(listed, func(e *entry) bool {
		return e.Key == key && e.ETag == now.ETag && e.Size == now.Size && e.ModTime.Equal(now.ModTime)
	}), nil
}

// probeTime learns the store's time from an object that it puts and deletes. The object is an empty
// flag, which counts as released. Other clients remove it if this process can't.
func (l *Locker) probeTime(ctx context.Context) (storeTime, error) {
	for try := 1; ; try++ {
		id, err := l.newID()
		if err != nil {
			return storeTime{}, err
		}
		key := l.keys.flag(Shared, l.opts.Clock.Now(), id)
		if _, err := l.put(ctx, key, nil, store.PutOptions{}); err != nil {
			return storeTime{}, fault.Errorf("learning the store's time: %w", err)
		}
		o, err := l.find(ctx, key)
		answered := l.opts.Clock.Elapsed() // not the time of the put, because an earlier send might have been applied since
		if rerr := l.remove(ctx, key); err == nil {
			err = rerr
		}
		switch {
		case err != nil:
			return storeTime{}, fault.Errorf("learning the store's time: %w", err)
		case o != nil:
			return storeTime{o.ModTime, answered}, nil
		case try == maxTries: // perhaps another client swept it each time
			return storeTime{}, fmt.Errorf("learning the store's time: %w: %q", errUnlisted, key)
		}
	}
}
