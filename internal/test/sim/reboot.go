package sim

import (
	"fmt"
	"time"
)

// rebooting is the reboot of a machine: when it begins, for how long the machine is down, and by how
// much its wall clock is set meanwhile.
type rebooting struct {
	at, down, by time.Duration
	machine      int
}

// drawReboots draws the reboots of machines, each of which ends all processes there. by are the
// steps of a wall clock to choose from.
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

// processClock is the clock of one process. It goes on as if its machine hadn't been booted since,
// so that what is left of a process that was killed ends.
type processClock struct {
	*clientClock
	booted time.Time
}

// Elapsed is the time since the machine was booted that the process was started on.
func (c *processClock) Elapsed() time.Duration { return c.since(c.booted) + c.shift }

// namespace is the name of a time namespace.
func namespace(n int) string { return fmt.Sprintf("time:[%d]", n+1) }

// contain puts a client into a time namespace of its own, whose clock since boot is ahead.
func (c *clientPlan) contain(n int, d dice) {
	c.namespace, c.shift = n+1, pick(d.of(1), d.of(2).between(time.Minute, time.Hour), d.of(2).between(0, 24*time.Hour))
}
