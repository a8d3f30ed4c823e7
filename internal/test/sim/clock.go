package sim

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/stoppedclock"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/memory"
)

// machine is a machine, which several clients can share.
type machine struct {
	host    string
	mu      sync.Mutex
	boots   int
	booted  time.Time
	skew    time.Duration // of the wall clock
	clients []*client
	frozen  stoppedclock.Stops // in which none of its clocks ran: see freeze
	lag     freezing
}

func (m *machine) jump(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skew += d
}

func (m *machine) wall() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	missed, _ := m.frozen.Stopped(m.booted)
	return time.Now().Add(m.skew - missed + m.lag.stepped)
}

// clientClock is the clock of one client. While the client is stopped, its timers stand still and its Elapsed
// counts on, as for a real process.
type clientClock struct {
	*machine
	stoppedclock.Stops
	dice      dice
	shift     time.Duration // of its time namespace
	parted    func() bool   // of a copy: see twins
	unstopped bool          // it is never stopped, so its timers need no care
}

// Stop stops the client.
func (c *clientClock) Stop(d time.Duration) {
	if c.unstopped {
		panic("a client is stopped in a history without stops: see plan.unstopped")
	}
	c.Stops.Stop(d)
}

// Now is the machine's wall clock.
func (c *clientClock) Now() time.Time { return c.wall() }

// Elapsed is the time since the machine was booted, as the client's time namespace has it.
func (c *clientClock) Elapsed() time.Duration { return c.uptime() + c.shift }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// awake returns once the client runs. The dice give each caller another time.
func (c *clientClock) awake(d dice) {
	for {
		_, left := c.Stopped(time.Now())
		if left == 0 {
			return
		}
		time.Sleep(left + nanoseconds(d.of(uint64(time.Now().UnixNano()))))
	}
}

// After fires once the client has run for d. It never fires at the time of a timer that another package has
// set.
func (c *clientClock) After(d time.Duration) <-chan time.Time {
	dice := c.dice.of(uint64(time.Now().UnixNano()), waiter(), uint64(d))
	if c.parted != nil && c.parted() {
		dice = dice.named("copy")
	}
	d += nanoseconds(dice) / 1000
	if c.unstopped {
		return time.After(d)
	}
	return c.Stops.After(d, func(left time.Duration) time.Duration { return nanoseconds(dice.of(uint64(left))) })
}

// waiter is a hash of the name of the package that waits. The refresher and the watch of a lock begin to wait
// at the same time, for the same duration, and must not continue at the same time. The scheduler decides which
// comes first, so only the caller can distinguish them. (The name of the function would do, but then a rename
// would change all histories.) Two waiters of one package may continue at the same time: each sends another
// request next, and send separates these.
func waiter() uint64 {
	var callers [4]uintptr
	n := runtime.Callers(3, callers[:])
	if known, ok := callersOf.Load(callers); ok {
		return known.(uint64)
	}
	frames := runtime.CallersFrames(callers[:n])
	for {
		frame, more := frames.Next()
		// The last element of the import path of the function's package.
		if pkg, _, _ := strings.Cut(path.Base(frame.Function), "."); pkg != "clock" || !more {
			hash := uint64(dice(0).named(pkg))
			callersOf.Store(callers, hash)
			return hash
		}
	}
}

// callersOf has the hashes of the callers that have been looked up.
var callersOf sync.Map

// freezing is the effect of a hypervisor's pauses on a machine.
type freezing struct {
	over    time.Time     // when the machine goes on after the last pause, or went on
	set     time.Time     // when its wall clock was last set right
	stepped time.Duration // by how much, in all
}

// freeze is a hypervisor's pause: nothing on the machine runs, and none of its clocks counts the time. If set
// isn't 0, the wall clock is corrected that long after the pause.
func (w *world) freeze(m *machine, d, set time.Duration) {
	m.mu.Lock()
	m.frozen.Stop(d)
	m.lag.over = later(m.lag.over, time.Now().Add(d))
	m.mu.Unlock()
	for _, c := range m.clients {
		c.clock.Stop(d)
		if t := c.twins; t != nil && c == t.first && !t.parted() {
			w.freeze(t.copy.machine, d, set)
		}
	}
	if set > 0 {
		time.AfterFunc(d+set, func() {
			if m.setRight() {
				w.trace(m.clients[0], "~~~ its wall clock is set right")
			}
		})
	}
}

// setRight steps the wall clock, as NTP does, unless the machine is paused again.
func (m *machine) setRight() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	missed, left := m.frozen.Stopped(m.booted)
	if left > 0 {
		return false
	}
	m.lag.set, m.lag.stepped = time.Now(), missed
	return true
}

func (m *machine) lags() freezing {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lag
}

// hypervisor makes the planned pauses.
func (w *world) hypervisor() {
	for _, f := range w.plan.freezes {
		time.Sleep(time.Until(w.start.Add(f.at)))
		if w.ctx.Err() != nil {
			return
		}
		m := w.machines[f.machine]
		w.fired(Freeze)
		w.trace(m.clients[0], "~~~ its machine is paused by the hypervisor for %v", f.long.Round(time.Millisecond))
		w.freeze(m, f.long, f.set)
	}
}

// lookInterval is how often a holder looks at its own objects.
const lookInterval = replock.DefaultLook

// A machine can't know at once that its hypervisor has paused it. Its holder looks at its own
// objects every lookInterval. If the wall clock is set right, the guard sees at its next beat
// that the two clocks have parted.
const beat = 500 * time.Millisecond

// passing is how long a holder can act beside a holder that has deleted its flag during its refresh: it pauses
// for 0.6 s at most, looks, reads a body, and lists its flag. With small pages it reads others first.
func (p *plan) passing() time.Duration {
	trips := 4
	if p.store.PageSize < 1000 {
		trips += 2 * len(p.clients)
	}
	return time.Second + time.Duration(trips)*p.roundTrip()
}

// adrift reports whether a lock can be live beside another one because the hypervisor paused its machine:
// until the machine continues, and then until the next look is answered or the guard has noticed the pause.
// The time counts from the other's acquire if that came after the look, which found the lock unchanged. That
// happens on a store that doesn't return its time, or if the other has decided to delete the lock before, and
// its delete arrives late. Without a fault a delete arrives so soon that the looks after the refresh find it.
func (w *world) adrift(h, other *holding) bool {
	c := h.p.client
	lag, now := c.machine.lags(), time.Now()
	if !lag.over.After(h.asked) { // the zero time, too
		return false
	}
	window := lookInterval + tick + w.plan.roundTrip()
	from := later(later(lag.over, h.began), c.troubled())
	switch {
	case now.Before(lag.over), h.straddled:
		return true
	case w.plan.timeless() && w.plan.store.IfMatch != memory.Kept:
		return true // a refresh that was under way has put the lock back, and nothing shows it
	case w.plan.timeless(), w.plan.rates != [kinds]float64{}:
		from = later(from, other.began)
		return now.Sub(from) <= window || !c.clock.Woke(window) // its process was stopped, too
	case lag.set.After(h.began) && !lag.set.Before(lag.over):
		return now.Sub(lag.set) <= beat+tick+grace
	default:
		return now.Sub(from) <= window || other.began.Sub(from) <= window+2*w.plan.roundTrip() && now.Sub(other.began) <= w.plan.passing()
	}
}

// straddle marks a lock of a paused machine when a put brings back objects that others have deleted while they
// passed it: a put that was under way, or, if If-Match isn't kept and the store doesn't return its time, any
// put whose look came before.
func (w *world) straddle(p *process, r *request) {
	lag, stepped := p.client.machine.lags(), w.start.Add(w.plan.storeJumpAt)
	paused := !lag.over.IsZero() && (w.plan.timeless() || r.handed.Before(lag.over))
	// Without If-Match, a step of the store's clock between a refresh's look and its put looks like a pause then.
	split := w.plan.scene == Stepped && w.plan.store.IfMatch != memory.Kept && stepped.Before(time.Now()) && stepped.After(r.handed.Add(-w.plan.roundTrip()))
	if !paused && !split {
		return
	}
	for _, h := range w.active {
		if h.p == p && (r.key == h.lock.Key() || r.key == keyOf(h.objects[1])) {
			h.straddled = true
		}
	}
}

// troubled is the time until which a faulty request of the client is under way.
func (c *client) troubled() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ailing > 0 {
		return time.Now()
	}
	return c.trouble
}

// ail notes that a request is faulty, until the returned function is called.
func (c *client) ail() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ailing++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ailing--
		c.trouble = time.Now()
	}
}

// guard is the process beside a holder that stops the protected command when the clocks part,
// until a look has found the lock.
func (w *world) guard(h *holding) {
	c := h.p.client.clock
	for {
		<-c.After(beat)
		if !w.holds(h) {
			return
		}
		if parted := clock.Read(c).SteppedSince(h.lock.Seen()); parted != h.stopped {
			w.stop(h, parted)
		}
	}
}

func (w *world) holds(h *holding) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return h.held()
}

func (w *world) stop(h *holding, stopped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.stopped = stopped
	w.say(h.p.client, "=== the guard: stopped %t", stopped)
}

// rebooting is the reboot of a machine: when it begins, for how long the machine is down, and by how
// much its wall clock is set meanwhile.
type rebooting struct {
	at, down, by time.Duration
	machine      int
}

// drawReboots draws the reboots of machines. A reboot ends all processes of a machine, and steps its wall
// clock by one of these.
func (p *plan) drawReboots(config *Config, d dice, share float64, by ...time.Duration) {
	if !config.has(Reboot) || p.mild || !d.of(1).chance(share) {
		return
	}
	machine := p.clients[d.of(2).below(len(p.clients))].machine
	p.reboots = []rebooting{{
		at: d.of(3).between(0, 3*p.ttl()), down: d.of(4).between(5*time.Second, 2*p.ttl()), by: pick(d.of(5), by...), machine: machine,
	}}
}

// restart makes the planned reboots.
func (w *world) restart() {
	for _, b := range w.plan.reboots {
		time.Sleep(time.Until(w.start.Add(b.at)))
		if w.ctx.Err() != nil {
			return
		}
		m := w.machines[b.machine]
		w.fired(Reboot)
		w.trace(m.clients[0], "~~~ its machine reboots, which takes %v, with its wall clock set by %v", b.down.Round(time.Millisecond), b.by)
		m.reboot(b.down, b.by)
		for _, c := range m.clients {
			c.clock.Stop(b.down)
			c.end()
		}
	}
}

// end kills the client's process, if it has one.
func (c *client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life != nil && !c.life.gone() {
		c.life.kill()
	}
}

// reboot starts the machine's clocks anew.
func (m *machine) reboot(down, by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boots++
	m.booted = time.Now().Add(down)
	m.skew += by
	m.lag.stepped = 0
}

// bootID is new with each boot.
func (m *machine) bootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%s.%d", m.host, m.boots)
}

// uptime is the clock since boot of processes in the machine's first time namespace.
func (m *machine) uptime() time.Duration { return m.since(m.bootedAt()) }

func (m *machine) bootedAt() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.booted
}

// since is the time that a clock has counted which began then.
func (m *machine) since(began time.Time) time.Duration {
	missed, _ := m.frozen.Stopped(began)
	return time.Since(began) - missed
}

// processClock is the clock of one process. It continues after a reboot of its machine, so that goroutines of
// a killed process end.
type processClock struct {
	*clientClock
	booted time.Time
}

// Elapsed is the time since the machine was booted that the process was started on.
func (c *processClock) Elapsed() time.Duration { return c.since(c.booted) + c.shift }

// namespace is the name of a time namespace.
func namespace(n int) string { return fmt.Sprintf("time:[%d]", n+1) }

// contain puts a client into its own time namespace, whose clock since boot is ahead.
func (c *clientPlan) contain(n int, d dice) {
	c.namespace, c.shift = n+1, pick(d.of(1), d.of(2).between(time.Minute, time.Hour), d.of(2).between(0, 24*time.Hour))
}
