package doctor

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/repolock/repolock/internal/text"
)

// slack is how far the time of an object can lag behind the store's clock: a file system takes its times from the
// kernel's last timer tick.
const slack = 50 * time.Millisecond

// reading is a time that the store reported, and the times of this machine before the request and after
// the answer.
type reading struct{ before, after, store time.Time }

// bounds returns the least and the greatest difference of two clocks that all readings allow.
// If the readings contradict each other, low is greater than high. step is the store's resolution.
func bounds(all []reading, step time.Duration) (low, high time.Duration) {
	low, high = math.MinInt64, math.MaxInt64
	for _, one := range all {
		// Between the two readings of this machine's clock, the store's clock showed this time, or up to a step and the
		// slack more.
		low = max(low, one.before.Sub(one.store)-step-slack)
		high = min(high, one.after.Sub(one.store))
	}
	return low, high
}

// resolution returns a second if all times are whole seconds, as in HTTP's Date, else 0.
func resolution(all []reading) time.Duration {
	for _, one := range all {
		if one.store.Nanosecond() != 0 {
			return 0
		}
	}
	return time.Second
}

// far is the largest difference of two clocks that causes no warning.
const far = 2 * time.Second

// clockOffset reports how far this machine's clock is ahead of the store's, from all listings, or else from mod
// times. A wrong clock is no failure, because it can't lead to a second holder.
func (x *exam) clockOffset(context.Context) (Check, error) {
	source, readings := "listing", x.readings
	if len(readings) == 0 {
		source, readings = "mod_time", x.stamps
	}
	if len(readings) == 0 {
		return Check{Result: Unknown, Detail: "the store reports no time"}, nil
	}
	low, high := bounds(readings, resolution(readings))
	if low-high > far {
		return Check{Result: Warn, Detail: fmt.Sprintf(
			"the store's own times contradict each other by %v, or this machine's clock was set meanwhile", (low - high).Round(time.Millisecond))}, nil
	}
	low, high = min(low, high), max(low, high)
	offset, uncertainty := (low+high)/2, (high-low)/2
	x.report.Clock = &Offset{offset.Seconds(), uncertainty.Seconds(), source}
	c := passed(fmt.Sprintf("this machine is %s the store, give or take %v", ahead(offset), uncertainty.Round(time.Millisecond)))
	if offset.Abs() > uncertainty+far {
		c.Result = Warn
		c.Detail += "; a wrong clock can't lead to a second holder, but an acquirer might have to watch a crashed holder's lock for its ttl"
	}
	return c, nil
}

// ahead returns "5s ahead of", or "5s behind" if the difference is negative.
func ahead(d time.Duration) string {
	if d < 0 {
		return text.Offset(-d) + " behind"
	}
	return text.Offset(d) + " ahead of"
}

// samples is the number of comparisons of a store's two clocks.
const samples = 5

// oneClock reports whether the same clock stamps objects and dates listings, by the age of objects that were
// just put.
func (x *exam) oneClock(ctx context.Context) (Check, error) {
	var pairs []reading // a listing's time, between two times of the clock that stamps objects
	for i := range samples {
		key := fmt.Sprintf("%sclock-%d", x.scratch, i)
		start, before := x.opts.Clock.Elapsed(), x.opts.Clock.Now()
		if _, err := x.put(ctx, key, "now"); err != nil {
			return Check{}, err
		}
		after := x.opts.Clock.Now()
		page, err := x.page(ctx, 0, key, "")
		if err != nil {
			return Check{}, err
		}
		if len(page.Objects) == 0 || page.Objects[0].ModTime.IsZero() {
			continue
		}
		stamped := page.Objects[0].ModTime
		x.stamps = append(x.stamps, reading{before, after, stamped})
		if !page.Now.IsZero() {
			pairs = append(pairs, reading{stamped, stamped.Add(x.opts.Clock.Elapsed() - start), page.Now})
		}
	}
	if len(pairs) == 0 {
		return Check{Result: Unknown, Detail: "the store doesn't date its listings; repolock uses the time of its own lock instead"}, nil
	}
	low, high := bounds(pairs, resolution(x.readings))
	high += resolution(x.stamps) + slack // because a stamp can lag behind its clock
	worst := max(low, 0)
	if high < 0 && -high > worst {
		worst = high
	}
	c := passed("one clock stamps objects and dates listings")
	switch {
	case worst != 0:
		c.Result = Warn
		c.Detail = fmt.Sprintf("the clock that dates listings is %s the clock that stamps objects", ahead(-worst))
	case !x.writer().Properties().StoreClock:
		c.Result = Warn
		c.Detail = "the store doesn't say whose clock stamps objects: perhaps it is the writing machine's"
	}
	return c, nil
}
