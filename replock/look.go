package replock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// look is the second half of "flag and look": after our flag was put, it lists the flags, and
// returns those that conflict: see enter. It reads bodies only of conflicts, and stops at the first
// page that has a live one.
func (l *Locker) look(ctx context.Context, t *try, s memory) (findings, error) {
	f := findings{st: t.st}
	t.looked, t.flag.listed, t.exclusive.listed = true, false, false
	t.seen = clock.Read(l.opts.Clock)
	last := "" // last key of the previous page
	for cursor := ""; ; {
		sent := l.opts.Clock.Elapsed()
		page, err := l.list(ctx, l.keys.all(), cursor)
		if err != nil {
			return f, err
		}
		f.now = sent
		answered := l.opts.Clock.Elapsed()
		t.trips.list.note(answered - sent)
		if err := l.slept(t, page, sent, answered); err != nil {
			return f, err
		}
		t.page = pageTime{page.Now, sent, t.sent, len(page.Objects)}
		t.learn(page, cursor != "", answered)
		t.noteExclusive(page)
		s.forget(page, last)
		if n := len(page.Objects); n > 0 {
			last = page.Objects[n-1].Key
		}
		others, complete := l.others(t, s, page)
		if len(others) > 0 && !t.st.known() {
			if err := l.learnApart(ctx, t); err != nil {
				return f, err
			}
		}
		f.st = t.st
		if err := l.judgeAll(ctx, t, &f, others); err != nil {
			return f, err
		}
		if len(f.live) > 0 {
			// If the ticket is gone, it must be put again before the conflicts end.
			if t.polls && t.listedAsPromised(page) != nil {
				t.flag.put = false
			}
			return f, nil
		}
		if complete || page.Next == "" {
			return f, t.listedAsPromised(page)
		}
		cursor = page.Next
	}
}

// errUnlisted: a listing that had to show our flag didn't. Either the lock was broken while it was
// being acquired, or the store doesn't keep the one promise that safety rests on.
var errUnlisted = unsure(errors.New("the store didn't list a lock that was just put"))

// listedAsPromised returns errUnlisted if the last page of a look had to show our flag and didn't.
// A shared acquirer's look can end before that page.
func (t *try) listedAsPromised(page store.Page) error {
	if _, certain := inPage(page, t.flag.key); !t.flag.put || t.flag.listed || !certain {
		return nil
	}
	return fmt.Errorf("%w: %q", errUnlisted, t.flag.key)
}

// learn takes the store's time from a page. The best source is the mod time of our own flag, which
// the store stamped before it answered our put. The next one is the page's own time. If a ticket is
// on a later page, it can be listed for the first time long after its put. Then the page's time is
// closer, and enough for a poll, which decides nothing.
func (t *try) learn(page store.Page, later bool, answered time.Duration) {
	for _, o := range page.Objects {
		if o.Key != t.flag.key {
			continue
		}
		t.flag.listed = o.Size > 0
		if o.ModTime.IsZero() || t.polls && later && t.st.known() {
			break
		}
		if !o.ModTime.Equal(t.dated.at) {
			// An earlier send can have been applied late. All that is known is that this was before
			// now.
			t.dated = storeTime{o.ModTime, answered}
		}
		t.st = t.dated
		return
	}
	if !page.Now.IsZero() {
		t.st = storeTime{page.Now, answered}
	}
}

// learnApart takes the store's time from our own flag, if the flag isn't on the pages so far and
// these have no time.
func (l *Locker) learnApart(ctx context.Context, t *try) error {
	own, err := l.find(ctx, t.flag.key)
	if err == nil && own != nil {
		t.st = storeTime{own.ModTime, l.opts.Clock.Elapsed()}
	}
	return err
}

// others returns the objects of a page that can conflict. complete reports that later pages have
// none.
func (l *Locker) others(t *try, s memory, page store.Page) (others []*entry, complete bool) {
	answered := l.opts.Clock.Elapsed()
	for _, o := range page.Objects {
		k := l.keys.kind(o.Key)
		if t.mode == Shared && k == kindShared {
			return others, true
		}
		if k == kindUnknown || t.owns(o) {
			continue
		}
		others = append(others, s.see(o, k, answered))
	}
	return others, false
}
