package replock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// look is the second half of "flag and look": after our own flag was put, it lists the flags and
// returns those in our way: see enter. It reads a body only if there is a conflict, and no
// further than the first page with a live one.
func (l *Locker) look(ctx context.Context, t *try, s memory) (findings, error) {
	f := findings{st: t.st}
	t.looked, t.flag.listed, t.exclusive.listed = true, false, false
	t.seen = clock.Read(l.opts.Clock)
	last := "" // key of the page before
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
		if t.returns {
			if err := t.listedAsPromised(page); err != nil {
				return f, err
			}
		}
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
			// A ticket that is gone must be put again before they are.
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

// errUnlisted: our own flag is missing in a listing that had to show it. Either the lock was
// broken while it was being taken, or the store does not keep the one promise that safety rests
// on.
var errUnlisted = unsure(errors.New("the store didn't list a lock that it had just been given"))

// listedAsPromised returns errUnlisted if the last page of a look had to show our flag and did
// not. A shared acquirer need not read as far as that.
func (t *try) listedAsPromised(page store.Page) error {
	if _, certain := inPage(page, t.flag.key); !t.flag.put || t.flag.listed || !certain {
		return nil
	}
	return fmt.Errorf("%w: %q", errUnlisted, t.flag.key)
}

// learn takes the store's time from a page: from the mod time of our own flag, which the store
// stamped before it answered our put, or else from the page. A ticket on a later page can be seen
// for the first time long after it was put. Then the time of the page is nearer, and enough for
// a poll, which decides nothing.
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
			// It can be an earlier put, applied late: it was before now, no more is known.
			t.dated = storeTime{o.ModTime, answered}
		}
		t.st = t.dated
		return
	}
	if !page.Now.IsZero() {
		t.st = storeTime{page.Now, answered}
	}
}

// learnApart takes the store's time from our own flag if that is on a later page than those that
// are to be judged, and the store does not tell the time otherwise.
func (l *Locker) learnApart(ctx context.Context, t *try) error {
	own, err := l.find(ctx, t.flag.key)
	if err == nil && own != nil {
		t.st = storeTime{own.ModTime, l.opts.Clock.Elapsed()}
	}
	return err
}

// others picks from a page the objects that can be in our way. complete reports that later pages can
// hold no more of them.
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
