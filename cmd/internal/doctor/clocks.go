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
// low is greater than high if the readings exclude each other.
func bounds(all []reading) (low, high time.Duration) {
	low, high = math.MinInt64, math.MaxInt64
	step := resolution(all)
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
func (x *exam) clockOffset(context.Context) error {
	source, readings := "listing", x.readings
	if len(readings) == 0 {
		source, readings = "mod_time", x.stamps
	}
	if len(readings) == 0 {
		x.add(Check{Name: ClockOffset, Result: Unknown, Detail: "the store reports no time"})
		return nil
	}
	low, high := bounds(readings)
	if low-high > far {
		x.add(Check{Name: ClockOffset, Result: Warn, Detail: fmt.Sprintf(
			"the times that the store reports differ by %v among themselves, or this machine's clock was set meanwhile", (low - high).Round(time.Millisecond))})
		return nil
	}
	low, high = min(low, high), max(low, high)
	offset, uncertainty := (low+high)/2, (high-low)/2
	x.report.Clock = &Offset{offset.Seconds(), uncertainty.Seconds(), source}
	c := Check{Name: ClockOffset, Result: OK, Detail: fmt.Sprintf("this machine is %s the store, give or take %v", ahead(offset), uncertainty.Round(time.Millisecond))}
	if offset.Abs() > uncertainty+far {
		c.Result = Warn
		c.Detail += "; it lets no second holder in, but a crashed holder's lock may be watched for its ttl before it is passed"
	}
	x.add(c)
	return nil
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
func (x *exam) oneClock(ctx context.Context) error {
	var pairs []pair
	for i := range samples {
		key := fmt.Sprintf("%sclock-%d", x.scratch, i)
		p, err := x.compare(ctx, key)
		if err != nil {
			return err
		}
		if !p.stamped.IsZero() && !p.now.IsZero() {
			pairs = append(pairs, p)
		}
	}
	if len(pairs) == 0 {
		x.add(Check{Name: OneClock, Result: Unknown, Detail: "listings don't tell the time; that of one's own lock is taken instead"})
		return nil
	}
	worst := time.Duration(0)
	for _, p := range pairs {
		if d := p.apart(resolution(x.stamps), resolution(x.readings)); d.Abs() > worst.Abs() {
			worst = d
		}
	}
	c := Check{Name: OneClock, Result: OK, Detail: "objects are stamped by the clock that listings tell"}
	switch {
	case worst != 0:
		c.Result = Warn
		c.Detail = fmt.Sprintf("listings tell a time that is %s the one that objects are stamped with", ahead(worst))
	case !x.writer().Properties().StoreClock:
		c.Result = Warn
		c.Detail = "it can't be told whose clock stamps objects: perhaps that of the machine that writes"
	}
	x.add(c)
	return nil
}

// pair is two times of a store: a mod time, and that of a listing at most elapsed later.
type pair struct {
	stamped, now time.Time
	elapsed      time.Duration
}

// apart returns the least difference of the two clocks, 0 if it can be one clock.
func (p pair) apart(stampStep, nowStep time.Duration) time.Duration {
	d := p.now.Sub(p.stamped)
	switch least, most := -nowStep-slack, p.elapsed+stampStep+slack; {
	case d < least:
		return d - least
	case d > most:
		return d - most
	default:
		return 0
	}
}

// compare puts an object and lists it.
func (x *exam) compare(ctx context.Context, key string) (pair, error) {
	start, before := x.opts.Clock.Elapsed(), x.opts.Clock.Now()
	if _, err := x.put(ctx, key, "now"); err != nil {
		return pair{}, err
	}
	after := x.opts.Clock.Now()
	page, err := x.list(ctx, 0, key, "")
	if err != nil || len(page.Objects) == 0 {
		return pair{}, err
	}
	stamped := page.Objects[0].ModTime
	if !stamped.IsZero() {
		x.stamps = append(x.stamps, reading{before, after, stamped})
	}
	return pair{stamped, page.Now, x.opts.Clock.Elapsed() - start}, nil
}
