package doctor

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// slack is how much a store's time may lag behind its clock: a file system's
// times move with the kernel's timer.
const slack = 50 * time.Millisecond

// reading is a time that the store told, and this machine's clock when it was
// asked and when it answered.
type reading struct{ before, after, store time.Time }

// readings narrow down how far two clocks are apart: the difference lies within
// the bounds of each of them.
type readings struct {
	mu  sync.Mutex
	all []reading
}

func (r *readings) note(one reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

// bounds are the least and the greatest difference that all readings allow. If
// they exclude each other, low is greater than high.
func (r *readings) bounds() (low, high time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	low, high = math.MinInt64, math.MaxInt64
	step := resolution(r.all)
	for _, one := range r.all {
		// The store's clock showed what it told, or up to a step and the slack
		// more, at some moment between before and after.
		low = max(low, one.before.Sub(one.store)-step-slack)
		high = min(high, one.after.Sub(one.store))
	}
	return low, high, len(r.all) > 0
}

// resolution is a second if there is nothing but whole seconds, as in HTTP's
// Date.
func resolution(all []reading) time.Duration {
	for _, one := range all {
		if one.store.Nanosecond() != 0 {
			return 0
		}
	}
	return time.Second
}

// far is how far apart clocks may be without anybody noticing.
const far = 2 * time.Second

// clockOffset reports how far this machine's clock is ahead of the store's, from
// all listings that there were, or else from mod times. Nobody is let in by a
// wrong clock.
func (x *exam) clockOffset(context.Context) error {
	low, high, ok := x.readings.bounds()
	source := "listing"
	if !ok {
		source = "mod_time"
		low, high, ok = x.stamps.bounds()
	}
	if !ok {
		x.add(Check{Name: ClockOffset, Result: Unknown, Detail: "the store tells no time"})
		return nil
	}
	if low-high > far {
		x.add(Check{Name: ClockOffset, Result: Warn, Detail: fmt.Sprintf(
			"the times that the store tells differ by %v among themselves, or this machine's clock was set meanwhile", (low - high).Round(time.Millisecond))})
		return nil
	}
	low, high = min(low, high), max(low, high)
	offset, uncertainty := (low+high)/2, (high-low)/2
	x.report.Clock = &Offset{offset.Seconds(), uncertainty.Seconds(), source}
	c := Check{Name: ClockOffset, Result: OK, Detail: offsetInWords(offset, uncertainty)}
	if offset.Abs() > uncertainty+far {
		c.Result = Warn
		c.Detail += "; it lets nobody in, but a crashed holder's lock may be watched for its ttl before it is passed"
	}
	x.add(c)
	return nil
}

func offsetInWords(offset, uncertainty time.Duration) string {
	word := "ahead of"
	if offset < 0 {
		word = "behind"
	}
	return fmt.Sprintf("this machine is %v %s the store, give or take %v", offset.Abs().Round(time.Millisecond), word, uncertainty.Round(time.Millisecond))
}

// samples is how often the two times of a store are compared.
const samples = 5

// oneClock finds out whether one clock stamps objects and dates listings: an
// object that was put just now must not be older or younger than that.
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
		if d := p.apart(resolution(x.stamps.all), resolution(x.readings.all)); d.Abs() > worst.Abs() {
			worst = d
		}
	}
	c := Check{Name: OneClock, Result: OK, Detail: "objects are stamped by the clock that listings tell"}
	switch {
	case worst != 0:
		c.Result = Warn
		c.Detail = fmt.Sprintf("listings tell a time that is %v %s the one that objects are stamped with", worst.Abs().Round(time.Millisecond),
			map[bool]string{true: "ahead of", false: "behind"}[worst > 0])
	case !x.writer().Properties().StoreClock:
		c.Result = Warn
		c.Detail = "it can't be told whose clock stamps objects: perhaps that of the machine that writes"
	}
	x.add(c)
	return nil
}

// pair is what a store told of its time by a mod time, and, elapsed after that put
// was sent at most, by a listing.
type pair struct {
	stamped, now time.Time
	elapsed      time.Duration
}

// apart is how far the two are apart at least, 0 if they may be of one clock.
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
	start, before := x.clock.Elapsed(), x.clock.Now()
	if _, err := x.put(ctx, key, "now"); err != nil {
		return pair{}, err
	}
	after := x.clock.Now()
	page, err := x.list(ctx, 0, key, "")
	if err != nil || len(page.Objects) == 0 {
		return pair{}, err
	}
	stamped := page.Objects[0].ModTime
	if !stamped.IsZero() {
		x.stamps.note(reading{before, after, stamped})
	}
	return pair{stamped, page.Now, x.clock.Elapsed() - start}, nil
}
