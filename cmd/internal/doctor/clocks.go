package doctor

import (
	"context"
	"fmt"
	"math"
	"time"
)

// slack is how much a store's time can lag behind its clock: a file system's times move with
// the kernel's timer.
const slack = 50 * time.Millisecond

// reading is a time from the store, and this machine's clock before the request and after the
// answer.
type reading struct{ before, after, store time.Time }

// bounds returns the least and the greatest difference of two clocks that all readings allow.
// low is greater than high if the readings exclude each other. step is the store's resolution.
func bounds(all []reading, step time.Duration) (low, high time.Duration) {
	low, high = math.MinInt64, math.MaxInt64
	for _, one := range all {
		// At some moment between before and after, the store's clock showed this time, or up
		// to a step and the slack more.
		low = max(low, one.before.Sub(one.store)-step-slack)
		high = min(high, one.after.Sub(one.store))
	}
	return low, high
}

// resolution returns a second if all times are whole seconds, as in HTTP's Date.
func resolution(all []reading) time.Duration {
	for _, one := range all {
		if one.store.Nanosecond() != 0 {
			return 0
		}
	}
	return time.Second
}

// far is the difference of two clocks up to which there is no warning.
const far = 2 * time.Second

// clockOffset reports how far this machine's clock is ahead of the store's, from all listings,
// or else from mod times. A wrong clock is no failure: it lets no client in.
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
			"the times that the store reports differ by %v among themselves, or this machine's clock was set meanwhile", (low - high).Round(time.Millisecond))}, nil
	}
	low, high = min(low, high), max(low, high)
	offset, uncertainty := (low+high)/2, (high-low)/2
	x.report.Clock = &Offset{offset.Seconds(), uncertainty.Seconds(), source}
	c := passed(fmt.Sprintf("this machine is %s the store, give or take %v", ahead(offset), uncertainty.Round(time.Millisecond)))
	if offset.Abs() > uncertainty+far {
		c.Result = Warn
		c.Detail += "; it lets no second holder in, but a crashed holder's lock may be watched for its ttl before it is passed"
	}
	return c, nil
}

// ahead returns "5s ahead of", or "5s behind" for a negative difference.
func ahead(d time.Duration) string {
	if d < 0 {
		return fmt.Sprintf("%v behind", d.Abs().Round(time.Millisecond))
	}
	return fmt.Sprintf("%v ahead of", d.Round(time.Millisecond))
}

// samples is the number of comparisons of a store's two times.
const samples = 5

// oneClock finds out whether one clock stamps objects and dates listings: an object that was
// put just now must not be older or younger than that.
func (x *exam) oneClock(ctx context.Context) (Check, error) {
	var pairs []reading // of the clock that listings tell, and of the one that stamps objects
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
		return Check{Result: Unknown, Detail: "listings don't tell the time; that of one's own lock is taken instead"}, nil
	}
	low, high := bounds(pairs, resolution(x.readings))
	high += resolution(x.stamps) + slack // a stamp can lag behind its clock
	worst := max(low, 0)
	if high < 0 && -high > worst {
		worst = high
	}
	c := passed("objects are stamped by the clock that listings tell")
	switch {
	case worst != 0:
		c.Result = Warn
		c.Detail = fmt.Sprintf("listings tell a time that is %s the one that objects are stamped with", ahead(-worst))
	case !x.writer().Properties().StoreClock:
		c.Result = Warn
		c.Detail = "it can't be told whose clock stamps objects: perhaps that of the machine that writes"
	}
	return c, nil
}
