package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// timeline is the text of a history's events.
type timeline struct {
	on    bool
	text  strings.Builder
	names map[string]string
	count map[string]int
}

func (t *timeline) String() string { return t.text.String() }

// trace notes an action of a client.
func (w *world) trace(c *client, format string, args ...any) {
	if !w.config.Trace {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say(c, format, args...)
}

// say is trace while mu is held.
func (w *world) say(c *client, format string, args ...any) {
	if !w.timeline.on {
		return
	}
	name := ""
	if c != nil {
		if c.follows() {
			return
		}
		name = cmp.Or(c.title, c.name)
	}
	for i, a := range args {
		switch a := a.(type) {
		case said:
			args[i] = w.said(c, a)
		case asked:
			args[i] = w.asked(a)
		case got:
			args[i] = w.got(a)
		case error:
			args[i] = w.rename(a.Error())
		}
	}
	fmt.Fprintf(&w.text, "%14.9f  %-7s  %s\n", time.Since(w.start).Seconds(), name, fmt.Sprintf(format, args...))
}

// said is a request that is sent, asked its meaning, and got its answer.
type (
	said struct {
		r *request
		f *mishap
	}
	asked struct{ r *request }
	got   struct {
		v   any
		err error
	}
)

func (w *world) said(c *client, s said) string {
	if s.r.op == "put" && c != nil && !isExclusive(s.r.key) && w.names[s.r.key] == "" {
		w.baptize(c, s.r.key)
	}
	text := w.asked(asked{s.r})
	switch {
	case s.r.opts.IfAbsent:
		text += " if absent"
	case s.r.opts.IfMatch != "":
		text += " if it matches"
	}
	if s.f.kind != None {
		w.result.Fired = append(w.result.Fired, s.f.id)
		text += "   ~~~ " + s.f.kind.String()
		if s.f.long > 0 && (s.f.kind == Late || s.f.kind == Twice) {
			text += fmt.Sprintf(" by %v", s.f.long.Round(time.Millisecond))
		}
		text += " [" + s.f.id + "]"
	}
	return text
}

// baptize names a flag after its client.
func (w *world) baptize(c *client, key string) {
	w.count[c.name]++
	kind := "object"
	switch {
	case strings.Contains(key, "lock.intent/"):
		kind = "intent"
	case strings.Contains(key, "lock.shared/"):
		kind = "shared"
	}
	w.names[key] = fmt.Sprintf("%s(%s#%d)", kind, c.name, w.count[c.name])
}

// name returns a readable name of a key.
func (w *world) name(key string) string {
	if name := w.names[key]; name != "" {
		return name
	}
	return strings.TrimPrefix(key, replock.DefaultPrefix)
}

// rename puts names in place of keys.
func (w *world) rename(text string) string {
	for key, name := range w.names {
		text = strings.ReplaceAll(text, key, name)
	}
	return text
}

func (w *world) asked(a asked) string {
	text := a.r.op + " " + w.name(a.r.key)
	if len(a.r.keys) > 0 {
		text = fmt.Sprintf("%s, %s to %s", a.r.op, text[len(a.r.op)+1:], w.name(a.r.keys[len(a.r.keys)-1]))
	}
	if a.r.op == "put" && len(a.r.body) == 0 {
		text += " (empty)"
	}
	if a.r.cursor != "" {
		text += " from " + w.name(a.r.cursor)
	}
	return text
}

func (w *world) got(g got) string {
	if g.err != nil {
		if e, ok := errors.AsType[*store.Error](g.err); ok {
			return e.Err.Error()
		}
		return g.err.Error()
	}
	switch v := g.v.(type) {
	case store.Page:
		var names []string
		for _, o := range v.Objects {
			name := w.name(o.Key)
			if o.Size == 0 {
				name += " (empty)"
			}
			names = append(names, name)
		}
		if v.Next != "" {
			names = append(names, "…")
		}
		return "sees " + cmp.Or(strings.Join(names, ", "), "nothing")
	case content:
		if len(v.raw) == 0 {
			return "empty"
		}
	}
	return "ok"
}

// describe returns the plan as text.
func (w *world) describe() {
	if !w.config.Trace {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.plan.store
	conditions := []string{"kept", "claimed and kept", "claimed and ignored", "refused"}
	w.say(nil, "store: if-none-match %s, if-match %s, pages of %d, mod times to %v%s", conditions[s.IfAbsent], conditions[s.IfMatch], s.PageSize,
		max(s.Precision, 1), flags("keeps versions", s.Versions, "takes a delete marker for an object", s.Markers, "tells no time", s.NoTime, "answers puts without a time", s.UntimedPuts, "has no clock", s.NoStoreClock, "has the machine's clock", w.plan.local,
			fmt.Sprintf("clock jumps by %v at %v", w.plan.storeJump, w.plan.storeJumpAt), w.plan.storeJump != 0,
			fmt.Sprintf("and back at %v", w.plan.storeBackAt), w.plan.storeBackAt != 0,
			fmt.Sprintf("gives hints (%+v)", w.plan.hints), w.plan.hints.on))
	for n, c := range w.plan.clients {
		if len(c.steps) > 0 {
			w.say(nil, "c%d: ttl %v, on machine %d%s", n+1, c.ttl, c.machine+1, flags(
				fmt.Sprintf("wall clock off by %v", c.skew), c.skew != 0, "may not delete", c.noDelete, "of the original protocol", c.foreign, "encrypts", c.foreign && w.plan.sealed,
				fmt.Sprintf("in %s, %v ahead", namespace(c.namespace), c.shift), c.namespace > 0,
				fmt.Sprintf("cut off from %.1f s to %.1f s", c.outage.from.Seconds(), c.outage.to.Seconds()), c.outage.to > 0))
		}
	}
}

// flags returns the texts that are followed by true.
func flags(pairs ...any) string {
	var b strings.Builder
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1].(bool) {
			b.WriteString(", " + pair[0].(string))
		}
	}
	return b.String()
}

// Totals are the sums over many histories.
type Totals struct {
	Histories int
	Result
	Tardy int // histories whose Idle is over idleAim
}

func (t *Totals) add(r Result) {
	t.Histories++
	t.Virtual += r.Virtual
	t.Requests += r.Requests
	t.Acquired += r.Acquired
	t.Held += r.Held
	t.Failed += r.Failed
	t.Lost += r.Lost
	t.Resumed += r.Resumed
	t.Queued += r.Queued
	if t.Idle = max(t.Idle, r.Idle); r.Idle > idleAim {
		t.Tardy++
	}
	for k, n := range r.Faults {
		t.Faults[k] += n
	}
}

// String returns two lines.
func (t *Totals) String() string {
	var faults []string
	for _, k := range Kinds() {
		faults = append(faults, fmt.Sprintf("%v %d", k, t.Faults[k]))
	}
	return fmt.Sprintf("%d histories, %.0f simulated hours, %d requests: locks granted %d, held by others %d, failed %d, lost %d, resumed %d, queued for %d; a free way was idle for up to %v and three trips, and for more than %v in %d of them\n%s",
		t.Histories, t.Virtual.Round(time.Hour).Hours(), t.Requests, t.Acquired, t.Held, t.Failed, t.Lost, t.Resumed, t.Queued, t.Idle.Round(time.Millisecond), idleAim, t.Tardy, strings.Join(faults, ", "))
}

// idleAim is how long the way of the first waiter should be free at most, beside three round trips.
const idleAim = time.Second

// maxShrinks is how many histories Shrink tries at most.
const maxShrinks = 1000

// Shrink leaves out of a history all parts that its violation doesn't need, and returns the
// rest, traced.
func Shrink(t *testing.T, config Config) (Config, Result) {
	config.Trace = true
	result := Run(t, config)
	if result.Violation == nil {
		return config, result
	}
	tries := 0
	// without leaves these parts out if the violation happens without them, and reports whether it does.
	without := func(names ...string) bool {
		if tries++; tries > maxShrinks {
			return false
		}
		smaller := config
		smaller.Without = append(slices.Clip(config.Without), names...)
		r := Run(t, smaller)
		if r.Violation == nil || r.Violation.Kind != result.Violation.Kind {
			return false
		}
		config, result = smaller, r
		return true
	}
	for again := true; again; {
		again = false
		for _, name := range parts(config) {
			if !slices.Contains(config.Without, name) && without(name) {
				again = true
			}
		}
		// Single faults: by halves first, since there can be many.
		for n := len(result.Fired); n > 0; n /= 2 {
			for from := 0; from < len(result.Fired); {
				some := result.Fired[from:min(from+n, len(result.Fired))]
				if without(some...) {
					again = true // Fired has changed
				} else {
					from += n
				}
			}
		}
	}
	config.Without = needed(config)
	return config, result
}

// parts are the parts that can be left out as a whole, the largest first.
func parts(config Config) (names []string) {
	p := newPlan(&config)
	for n, c := range p.clients {
		if len(c.steps) > 0 {
			names = append(names, fmt.Sprintf("c%d", n+1))
		}
	}
	for _, k := range Kinds() {
		names = append(names, k.String())
	}
	for _, c := range p.clients {
		for _, s := range c.steps {
			names = append(names, s.name)
		}
	}
	return names
}

// needed returns Without, less the entries that another entry implies.
func needed(config Config) []string {
	return slices.DeleteFunc(slices.Clone(config.Without), func(name string) bool {
		for _, other := range config.Without {
			if n := len(other); len(name) > n && name[:n] == other && (name[n] == '.' || name[n] == ':') {
				return true
			}
		}
		return false
	})
}
