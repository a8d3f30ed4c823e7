package doctor

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// A race has rounds; in each, racers ask at once for what one of them may have.
const (
	rounds = 20
	racers = workers
)

var ifAbsent = store.PutOptions{IfAbsent: true}

// ifNoneMatch tries out a put that must not overwrite: one caller at a time, and
// several at once.
func (x *exam) ifNoneMatch(ctx context.Context) error {
	declared := x.writer().Properties().IfAbsent
	o, detail, err := x.afresh(ctx, "if-none-match", func(key string) []step {
		put := func() error { _, err := x.putOnce(ctx, key, "first", ifAbsent); return err }
		return []step{
			{"a put where there was nothing", done, put},
			{"a put over an object", unmet, put},
		}
	})
	if err != nil {
		return err
	}
	if o == kept {
		detail = "a put over an object was refused"
	}
	x.ifNoneMatchIs = o
	x.add(conditional(IfNoneMatch, o, declared, detail, nil))
	if o == lacking || o == forbidden {
		return nil // the race stays untried
	}
	if err := x.ifNoneMatchRace(ctx, declared); err != nil {
		return err
	}
	if o != kept || len(x.lacking([]string{Delete})) > 0 {
		return nil
	}
	return x.ifNoneMatchDeleted(ctx, declared)
}

// ifNoneMatchDeleted tries out a put that must not overwrite where something was deleted, as
// lock.exclusive is by each release. Another handle deletes it, because one that keeps
// versions removes the delete marker of its own.
func (x *exam) ifNoneMatchDeleted(ctx context.Context, declared store.Condition) error {
	o, detail, err := x.afresh(ctx, "if-none-match-deleted", func(key string) []step {
		return []step{
			{"a plain put", done, func() error { _, err := x.put(ctx, key, "1"); return err }},
			{"a deletion", done, func() error { return x.removeBy(ctx, x.reader(1), key) }},
			{"a put where something was deleted", done, func() error { _, err := x.putOnce(ctx, key, "2", ifAbsent); return err }},
		}
	})
	if err != nil {
		return err
	}
	if o == kept {
		detail = "a put with If-None-Match on a key that was deleted was taken"
	}
	c := conditional(IfNoneMatchGone, o, declared, detail, nil)
	if o == ignored {
		c.Detail = "the server refuses If-None-Match on a key that was deleted (412), as if a delete marker were an object (versitygw)"
		if declared == store.Kept {
			c.Detail += ": leave conditions=kept out of the URL"
		} else {
			c.Detail += ": a process's first exclusive lock takes up to 10 round trips, and then repolock puts without the condition"
		}
	}
	if o != kept && x.ifNoneMatchIs == kept {
		x.ifNoneMatchIs = o
	}
	x.add(c)
	return nil
}

// ifNoneMatchRace has several put what may be there once.
func (x *exam) ifNoneMatchRace(ctx context.Context, declared store.Condition) error {
	var won, unanswered, over, under int
	for r := range rounds {
		key := fmt.Sprintf("%sif-none-match/round-%02d", x.scratch, r)
		w, u, err := x.round(ctx, key)
		if err != nil {
			return err
		}
		won, unanswered = won+w, unanswered+u
		switch {
		case w > 1:
			over++
		case w == 0 && u == 0:
			under++
		}
	}
	counts := map[string]int{
		"rounds": rounds, "puts": rounds * racers, "won": won, "unanswered": unanswered,
		"rounds_with_several_winners": over, "rounds_without_winner": under,
	}
	o, detail := kept, fmt.Sprintf("one winner in each of %d rounds of %d", rounds, racers)
	if over+under > 0 {
		if o = x.ifNoneMatchIs; o == kept {
			o = racy
		}
		word := map[outcome]string{ignored: "ignored", racy: "racy"}[o]
		detail = fmt.Sprintf("%s: %d of %d won, where one in each of %d rounds should have", word, won, rounds*racers, rounds)
	}
	if x.ifNoneMatchIs == kept {
		x.ifNoneMatchIs = o
	}
	x.add(conditional(IfNoneMatchRace, o, declared, detail, counts))
	return nil
}

// round is one race for a key. A put that got no answer may have won.
func (x *exam) round(ctx context.Context, key string) (won, unanswered int, err error) {
	var yes, none atomic.Int32
	err = parallel(ctx, racers, func(ctx context.Context, i int) error {
		_, err := x.putOnce(ctx, key, fmt.Sprint(i), ifAbsent)
		switch a, failure := sorted(err); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case failure != nil && store.Permanent(failure):
			return failure
		case failure != nil:
			none.Add(1)
		case a == done:
			yes.Add(1)
		}
		return nil
	})
	return int(yes.Load()), int(none.Load()), err
}
