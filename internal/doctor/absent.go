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
	return x.ifNoneMatchRace(ctx, declared)
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
