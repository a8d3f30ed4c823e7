package doctor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/repolock/repolock/store"
)

// conclude ends a report. failure is what broke the exam off.
func (x *exam) conclude(failure error) {
	x.report.Latency = x.latencies.summary()
	x.report.Verdict = x.verdict(failure)
	if x.report.Verdict.Fitness == Fit {
		p := x.plan()
		x.report.Plan = &p
	}
}

// verdict: what is broken outranks what isn't allowed.
func (x *exam) verdict(failure error) Verdict {
	var broken, forbidden []string
	for _, c := range x.report.Checks {
		switch {
		case c.Result != Fail:
		case c.Refused:
			forbidden = append(forbidden, label(c.Name))
		default:
			broken = append(broken, label(c.Name))
		}
	}
	switch {
	case len(broken) > 0:
		return Verdict{Unfit, "this store is not fit to hold locks: " + strings.Join(broken, ", ") + " failed"}
	case errors.Is(failure, store.ErrListing):
		return Verdict{Unfit, "this store is not fit to hold locks: " + failure.Error()}
	case failure != nil:
		return Verdict{NotKnown, "whether this store is fit isn't known: it could not be tried out to the end"}
	case len(forbidden) > 0:
		return Verdict{LacksPermission, "locks need permissions that are lacking here: " + strings.Join(forbidden, ", ")}
	default:
		return Verdict{Fit, "this store is fit to hold locks"}
	}
}

func label(name string) string {
	if name == Reachable {
		return "list the locks" // else it would be an error
	}
	return strings.ReplaceAll(name, "_", " ")
}

// plan is what repolock does on a store that is fit.
func (x *exam) plan() Plan {
	p := x.writer().Properties()
	absent, match := x.ifNoneMatchIs == kept, x.ifMatchIs == kept
	del, _ := x.report.Check(Delete)

	plan := Plan{Shared: 2, Exclusive: 4, Renewal: "look_and_put", Release: "delete", Conditions: Unreliable}
	switch {
	case p.IfAbsent == store.Kept && absent:
		plan.Exclusive = 2
	case p.IfAbsent == store.Claimed && x.ifNoneMatchIs == lacking:
		plan.Exclusive = 5 // one is spent on learning it
	}
	if p.IfMatch == store.Kept && match {
		plan.Renewal = "if_match"
	}
	if del.Result != OK {
		plan.Release = "empty_put"
	}
	if absent && match {
		plan.Conditions = Proven
		if p.IfAbsent == store.Kept && p.IfMatch == store.Kept {
			plan.Conditions = Relied
		}
	}
	plan.Fence = plan.Conditions == Relied
	plan.Says = x.says(plan, p)
	return plan
}

// says puts a plan into words.
func (x *exam) says(plan Plan, p store.Properties) []string {
	acquire := fmt.Sprintf("a shared lock is taken in %d round trips, an exclusive one in %d", plan.Shared, plan.Exclusive)
	renewal := map[string]string{
		"if_match":     "a lock is renewed by a put with If-Match, in 1 round trip",
		"look_and_put": "a lock is renewed by a look and a put, in 2 round trips",
	}[plan.Renewal]
	if p.IfMatch == store.Claimed && x.ifMatchIs == kept {
		renewal += "; the put has If-Match, once the store has proven to the process that it heeds it"
	}
	release := map[string]string{
		"delete":    "a lock is released by deleting it",
		"empty_put": "a lock is released by emptying it, because deleting isn't allowed: empty objects stay, and can be removed by whoever may",
	}[plan.Release]
	fence := "fencing numbers (--fence) can be had"
	if !plan.Fence {
		fence = "fencing numbers (--fence) can't be had: they need conditional puts that the store is known to keep"
	}
	return []string{acquire, renewal, release, fence, x.staleness(p)}
}

// staleness says what clocks are for.
func (x *exam) staleness(p store.Properties) string {
	const never = ", and no wrong clock lets anybody in"
	switch one, _ := x.report.Check(OneClock); {
	case !p.StoreClock:
		return "a crashed holder's lock is watched for its ttl before it is passed, because the store has no clock to rely on" + never
	case x.report.Clock == nil, one.Result == Warn:
		return "a crashed holder's lock is passed when the store's clock and this machine's agree that it has expired, and else watched for its ttl" + never
	default:
		return "a crashed holder's lock is passed as soon as it has expired by the store's clock and by this machine's" + never
	}
}
