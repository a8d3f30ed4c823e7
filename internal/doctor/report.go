package doctor

// Names of the checks, in the order of a report.
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

// Report is what was found. Its JSON only grows.
type Report struct {
	// Store is the backend's name, Server what the server calls itself.
	Store  string `json:"store"`
	Server string `json:"server,omitempty"`
	// Prefix of all that was written.
	Prefix  string    `json:"prefix"`
	Checks  []Check   `json:"checks"`
	Clock   *Offset   `json:"clock,omitempty"`
	Latency []Latency `json:"latency"`
	// Left are the keys that could not be deleted, or may be there: empty
	// objects, where they may be overwritten.
	Left []string `json:"left,omitempty"`
	// Plan is what repolock does on this store, if it is fit.
	Plan    *Plan   `json:"plan,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Also is what was found when writing through another way to the repository: see Both.
	Also *Report `json:"also,omitempty"`
}

// Check gives the check of that name.
func (r *Report) Check(name string) (Check, bool) {
	for _, c := range r.Checks {
		if c.Name == name {
			return c, true
		}
	}
	return Check{}, false
}

// Check is one thing that was tried out.
type Check struct {
	Name   string `json:"name"`
	Result Result `json:"result"`
	Detail string `json:"detail"`
	// Refused: it failed for who asked, and not for what the store is.
	Refused bool `json:"refused,omitempty"`
	// Counts are what the detail is about, by name.
	Counts map[string]int `json:"counts,omitempty"`
}

// Result of a check.
type Result string

const (
	OK Result = "ok"
	// Warn: repolock works without it.
	Warn Result = "warn"
	// Fail: repolock doesn't work like that.
	Fail    Result = "fail"
	Unknown Result = "unknown"
)

// Offset is how far this machine's clock is ahead of the store's.
type Offset struct {
	Seconds float64 `json:"offset_seconds"`
	// Uncertainty is how far it may be off, either way: an answer takes time, and
	// a store may tell its own in whole seconds.
	Uncertainty float64 `json:"uncertainty_seconds"`
	// Source is "listing", or "mod_time" where a listing doesn't tell the time.
	Source string `json:"source"`
}

// Latency of one kind of request, up to eight of which were under way at once.
type Latency struct {
	Request  string  `json:"request"`
	N        int     `json:"n"`
	MedianMS float64 `json:"median_ms"`
	P99MS    float64 `json:"p99_ms"`
}

// Plan is what repolock will do.
type Plan struct {
	// Round trips, one after another, to take a lock.
	Shared    int `json:"shared_round_trips"`
	Exclusive int `json:"exclusive_round_trips"`
	// Renewal is "if_match" or "look_and_put".
	Renewal string `json:"renewal"`
	// Release is "delete" or "empty_put".
	Release string `json:"release"`
	// Fence: --fence can be had.
	Fence bool `json:"fence"`
	// Conditions says how far conditional puts are relied on.
	Conditions Conditions `json:"conditions"`
	// Says is the same in words.
	Says []string `json:"says"`
}

// Conditions says how far a store's conditional puts are relied on.
type Conditions string

const (
	// Relied: the backend declares them as kept, and they were.
	Relied Conditions = "relied_on"
	// Proven: the backend doesn't know, and they passed all that was tried.
	Proven Conditions = "proven"
	// Unreliable: they are ignored, or lacking, or not known to be kept.
	Unreliable Conditions = "unreliable"
)

// Verdict is the last word.
type Verdict struct {
	Fitness Fitness `json:"fitness"`
	Summary string  `json:"summary"`
}

// Fitness of a store.
type Fitness string

const (
	Fit Fitness = "fit"
	// LacksPermission: what is wrong is only what isn't allowed.
	LacksPermission Fitness = "lacks_permission"
	Unfit           Fitness = "unfit"
	// NotKnown: it could not be tried out to the end.
	NotKnown Fitness = "unknown"
)
