package doctor

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
	// Left are the keys of objects that were not deleted, and can be there. They are empty if
	// overwriting is allowed.
	Left    []string `json:"left,omitempty"`
	Plan    *Plan    `json:"plan,omitempty"` // if the store is fit
	Verdict Verdict  `json:"verdict"`
	// Also is the report about writes through another way to the repository: see Both.
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

// Check is one property of the store that was tried out.
type Check struct {
	Name    string         `json:"name"`
	Result  Result         `json:"result"`
	Detail  string         `json:"detail"`
	Refused bool           `json:"refused,omitempty"` // for lack of a permission
	Counts  map[string]int `json:"counts,omitempty"`  // by name, those of the detail
}

// Result of a check.
type Result string

const (
	OK      Result = "ok"
	Warn    Result = "warn" // repolock works without it
	Fail    Result = "fail" // repolock doesn't work like that
	Unknown Result = "unknown"
)

// Offset is how far this machine's clock is ahead of the store's.
type Offset struct {
	Seconds float64 `json:"offset_seconds"`
	// Uncertainty bounds the error, either way: an answer takes time, and a store's time can
	// be in whole seconds.
	Uncertainty float64 `json:"uncertainty_seconds"`
	// Source is "listing", or "mod_time" if listings have no time.
	Source string `json:"source"`
}

// Latency is that of one kind of request, up to eight of which were under way at once.
type Latency struct {
	Request  string  `json:"request"`
	N        int     `json:"n"`
	MedianMS float64 `json:"median_ms"`
	P99MS    float64 `json:"p99_ms"`
}

// Plan is what repolock will do.
type Plan struct {
	// Round trips, one after another, to take a lock.
	Shared     int        `json:"shared_round_trips"`
	Exclusive  int        `json:"exclusive_round_trips"`
	Renewal    string     `json:"renewal"` // "if_match" or "look_and_put"
	Release    string     `json:"release"` // "delete" or "empty_put"
	Fence      bool       `json:"fence"`   // --fence can be had
	Conditions Conditions `json:"conditions"`
	Says       []string   `json:"says"` // the same in words
}

// Conditions says how far repolock relies on a store's conditional puts.
type Conditions string

const (
	Relied     Conditions = "relied_on"  // the backend declares them as kept, and they were
	Proven     Conditions = "proven"     // the backend doesn't know, and they passed all tests
	Unreliable Conditions = "unreliable" // they are ignored, or lacking, or not known to be kept
)

// Verdict is the judgement of a store.
type Verdict struct {
	Fitness Fitness `json:"fitness"`
	Summary string  `json:"summary"`
}

// Fitness of a store.
type Fitness string

const (
	Fit             Fitness = "fit"
	LacksPermission Fitness = "lacks_permission" // only that is wrong
	Unfit           Fitness = "unfit"
	NotKnown        Fitness = "unknown" // it could not be tried out to the end
)
