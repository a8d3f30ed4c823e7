package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/store"
)

// Names of the checks, in order.
const (
	Reachable         = "reachable"
	List              = "list"
	Write             = "write"
	Read              = "read"
	Overwrite         = "overwrite"
	Delete            = "delete"
	ListAfterWrite    = "list_after_write"
	IfNoneMatch       = "if_none_match"
	IfNoneMatchRace   = "if_none_match_race"
	IfNoneMatchGone   = "if_none_match_deleted"
	IfMatch           = "if_match"
	IfMatchRace       = "if_match_race"
	IfMatchAbsent     = "if_match_absent"
	ConditionalDelete = "conditional_delete"
	Versioning        = "versioning"
	ObjectLock        = "object_lock"
	OneClock          = "one_clock"
	ClockOffset       = "clock_offset"
)

// Report is the result of an examination. Fields of its JSON are only ever added.
type Report struct {
	Store   string    `json:"store"`            // the backend's name
	Server  string    `json:"server,omitempty"` // the server's own name
	Prefix  string    `json:"prefix"`
	Checks  []Check   `json:"checks"`
	Clock   *Offset   `json:"clock,omitempty"`
	Latency []Latency `json:"latency"`
	// Left are the keys of objects that doctor couldn't delete. If it may overwrite, the objects are empty.
	Left    []string `json:"left,omitempty"`
	Plan    *Plan    `json:"plan,omitempty"` // only if the store is fit
	Verdict Verdict  `json:"verdict"`
	// Also is the report on writes through the second store of Both.
	Also *Report `json:"also,omitempty"`
}

// Check returns the check with a name.
func (r *Report) Check(name string) (Check, bool) {
	for _, c := range r.Checks {
		if c.Name == name {
			return c, true
		}
	}
	return Check{}, false
}

// Check is the result of trying out one property of the store.
type Check struct {
	Name    string         `json:"name"`
	Result  Result         `json:"result"`
	Detail  string         `json:"detail"`
	Refused bool           `json:"refused,omitempty"` // a permission is lacking
	Counts  map[string]int `json:"counts,omitempty"`  // the numbers of the detail

	outcome     outcome // if it is about a condition of a put
	credentials bool    // the credentials were refused, so nothing is known about permissions
}

// Result of a check.
type Result string

const (
	OK      Result = "ok"
	Warn    Result = "warn" // repolock works without the property
	Fail    Result = "fail" // repolock doesn't work without the property
	Unknown Result = "unknown"
)

// Offset is how far this machine's clock is ahead of the store's.
type Offset struct {
	Seconds float64 `json:"offset_seconds"`
	// Uncertainty bounds the error of Seconds in both directions: an answer takes time, and a store's time
	// can be in whole seconds.
	Uncertainty float64 `json:"uncertainty_seconds"`
	// Source is "listing", or "mod_time" if listings have no time.
	Source string `json:"source"`
}

// Latency is the latency of one kind of request. Up to eight requests were under way at once.
type Latency struct {
	Request  string  `json:"request"`
	N        int     `json:"n"`
	MedianMS float64 `json:"median_ms"`
	P99MS    float64 `json:"p99_ms"`
}

// Plan is the way in which repolock will use the store.
type Plan struct {
	Shared     int        `json:"shared_round_trips"`    // to acquire a shared lock
	Exclusive  int        `json:"exclusive_round_trips"` // to acquire an exclusive lock
	Renewal    string     `json:"renewal"`               // "if_match" or "look_and_put"
	Release    string     `json:"release"`               // "delete" or "empty_put"
	Fence      bool       `json:"fence"`                 // --fence is available
	Conditions Conditions `json:"conditions"`
	Says       []string   `json:"says"` // the same in words
}

// Conditions is how far repolock relies on a store's conditional puts.
type Conditions string

const (
	Relied     Conditions = "relied_on"  // the backend declares them as kept, and doctor confirms it
	Proven     Conditions = "proven"     // the backend doesn't declare them as kept, but they passed all checks
	Unreliable Conditions = "unreliable" // they are ignored or lacking, or a check couldn't be made
)

// Verdict is the judgement of a store.
type Verdict struct {
	Fitness Fitness `json:"fitness"`
	Summary string  `json:"summary"`
	// Credentials is set if the store refused the credentials. Fitness is LacksPermission then.
	Credentials bool `json:"credentials_refused,omitempty"`
}

// Fitness of a store.
type Fitness string

const (
	Fit             Fitness = "fit"
	LacksPermission Fitness = "lacks_permission" // and nothing else is wrong
	Unfit           Fitness = "unfit"
	NotKnown        Fitness = "unknown" // the examination ended early
)

// conclude completes the report. failure is the error that ended the examination, or nil.
func (x *exam) conclude(failure error) {
	x.report.Latency = x.latency()
	x.report.Verdict = x.verdict(failure)
	if x.report.Verdict.Fitness == Fit {
		x.report.Plan = x.plan()
	}
}

// verdict judges the checks. A failed check wins over a lacking permission.
func (x *exam) verdict(failure error) Verdict {
	var broken, forbidden []string
	credentials := false
	for _, c := range x.report.Checks {
		credentials = credentials || c.credentials
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
		return Verdict{Fitness: Unfit, Summary: "this store is not fit to hold locks: " + strings.Join(broken, ", ") + " failed"}
	case errors.Is(failure, store.ErrListing):
		return Verdict{Fitness: Unfit, Summary: "this store is not fit to hold locks: " + failure.Error()}
	case failure != nil:
		return Verdict{Fitness: NotKnown, Summary: "it isn't known whether this store is fit: the examination ended early"}
	case credentials:
		return Verdict{Fitness: LacksPermission, Summary: "the store refuses the credentials, so it isn't known what they permit: correct the key and the secret, and try again", Credentials: true}
	case len(forbidden) > 0:
		return Verdict{Fitness: LacksPermission, Summary: "locks need permissions that are lacking here: " + strings.Join(forbidden, ", ")}
	default:
		return Verdict{Fitness: Fit, Summary: "this store is fit to hold locks"}
	}
}

func label(name string) string {
	if name == Reachable {
		return "list the locks" // Reachable fails only for this lack; any other failure ends the examination
	}
	return strings.ReplaceAll(name, "_", " ")
}

// plan returns the plan for a store that is fit.
func (x *exam) plan() *Plan {
	p := x.writer().Properties()
	absent, match := x.worst(IfNoneMatch) == kept, x.worst(IfMatch) == kept

	plan := &Plan{Shared: 2, Exclusive: 4, Renewal: "look_and_put", Release: "delete", Conditions: Unreliable}
	switch {
	case p.IfAbsent == store.Kept && absent:
		plan.Exclusive = 2
	case p.IfAbsent == store.Claimed && x.worst(IfNoneMatch) == lacking:
		plan.Exclusive = 5 // one round trip shows that the condition is lacking
	}
	renewal := "a lock is renewed by a look and a put, in 2 round trips"
	switch {
	case p.IfMatch == store.Kept && match:
		plan.Renewal, renewal = "if_match", "a lock is renewed by a put with If-Match, in 1 round trip"
	case p.IfMatch == store.Claimed && match:
		renewal += "; the put has If-Match as soon as the store has proven to the process that it obeys If-Match"
	}
	release := "a lock is released by deleting it"
	if !x.granted(Delete) {
		plan.Release = "empty_put"
		release = "a lock is released by emptying it, because deleting isn't allowed: empty objects stay, and a user with permission can remove them"
	}
	fence := "fencing tokens (--fence) aren't available: they need a store that is known to honour conditional puts"
	switch {
	case absent && match && p.IfAbsent == store.Kept && p.IfMatch == store.Kept:
		plan.Conditions, plan.Fence = Relied, true
		fence = "fencing tokens (--fence) are available"
	case absent && match:
		plan.Conditions = Proven
	}
	acquire := fmt.Sprintf("a shared lock is acquired in %d round trips, an exclusive one in %d", plan.Shared, plan.Exclusive)
	plan.Says = []string{acquire, renewal, release, fence, x.staleness(p)}
	return plan
}

// staleness returns in words when the next client can acquire a crashed holder's lock.
func (x *exam) staleness(p store.Properties) string {
	const never = ", and no wrong clock causes a second holder"
	switch one, _ := x.report.Check(OneClock); {
	case !p.StoreClock:
		return "a crashed holder's lock is watched for its ttl before it is removed, because the store has no clock to rely on" + never
	case x.report.Clock == nil, one.Result == Warn:
		return "a crashed holder's lock is removed when the store's clock and this machine's agree that it has expired; if they don't agree, the lock is watched for its ttl first" + never
	default:
		return "a crashed holder's lock is removed as soon as both the store's clock and this machine's show that it has expired" + never
	}
}

// Fitness returns the fitness of the store, or the worse one of two stores after Both.
func (r *Report) Fitness() Fitness {
	if r.Also == nil || r.Verdict.Fitness == Unfit || r.Also.Verdict.Fitness == Fit {
		return r.Verdict.Fitness
	}
	return r.Also.Verdict.Fitness
}

// requests are the kinds of requests, in the order of a report.
var requests = []string{"list", "get", "put", "put if-none-match", "put if-match", "delete", "delete if-match"}

func (x *exam) latency() []Latency {
	summary := []Latency{}
	for _, kind := range requests {
		took := x.took[kind]
		if len(took) == 0 {
			continue
		}
		slices.Sort(took)
		milliseconds := func(percent int) float64 { return float64(rank(took, percent).Microseconds()) / 1000 }
		summary = append(summary, Latency{kind, len(took), milliseconds(50), milliseconds(99)})
	}
	return summary
}

// rank returns the nearest-rank percentile of sorted values.
func rank(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}
