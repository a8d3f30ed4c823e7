//go:build unix

package guard

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/repolock/repolock/internal/clock"
)

// Page is the memory that repolock shares with its guard. A guard that replaces a dead one gets the same page.
//
// Each word has one writer:
//
//	pgid, expiry   repolock, before the first allowance
//	slots          repolock: version n of the allowance is in slots[n%2]
//	version        repolock: the version of the current allowance, or 0 while there is none
//	followed       the guard: the version that it enforces
//	stopsBegun     the guard: the stops of the group that have begun
//	stopsDone      the guard: the stops whose signal was sent; after a guard's death repolock corrects it
//	paused         repolock: 1 while the group must be stopped whatever its allowance is
//	sigconts       repolock: its own SIGCONTs
//	anchor         the guard: the pid of its own process in the stopped group, or 0
//	continued      the guard: how often another process has continued the stopped group, since it may not run
//
// All words are atomic, and Go's atomic operations have one order that both processes see. Either process can be
// stopped or killed between any two of them. So the order of the writes matters:
//
// Allow. repolock writes the allowance into the slot that isn't current, and then its version. The guard reads the
// version, the slot and the version again, and repeats that if the version has changed. So it gets a whole
// allowance: the new one, or the one before if repolock was killed in between.
//
// Follow. The guard enforces an allowance, checks that its version is still current, and then writes the version to
// followed. It enforces no earlier allowance after that. So when followed has reached the current version, no signal
// because of an earlier one can come after repolock's SIGCONT. When a guard replaces a dead one, repolock writes a
// new version, which followed reaches only when the new guard follows it.
//
// Stop. The guard counts a stop in stopsBegun, sends SIGSTOP, and counts the stop in stopsDone. repolock reads
// stopsDone before it sends SIGCONT. If stopsDone is higher later, the group might be stopped, and repolock
// continues it when it may run. So a stop that is under way at the SIGCONT isn't missed.
//
// Continued. While the group may not run, the guard looks for processes that another process has continued. A SIGCONT
// that repolock sends when the guard has just begun to stop the group changes sigconts before, so it doesn't count.
//
// A guard that dies with stopsBegun above stopsDone might have sent the signal, or not. When repolock has reaped it,
// it sets stopsDone to stopsBegun. So repolock continues the group rather than leave it stopped for ever.
type Page struct {
	pgid, expiry          atomic.Int32
	version, followed     atomic.Uint32
	stopsBegun, stopsDone atomic.Uint32
	paused                atomic.Uint32
	sigconts, continued   atomic.Uint32
	anchor                atomic.Int32
	slots                 [2][3]atomic.Int64 // Until, Seen.Wall and Seen.Elapsed of an Allowance
}

// Size is the size of a page's file.
const Size = 4096

// Map maps the file of a page.
func Map(fd int) (*Page, error) {
	memory, err := syscall.Mmap(fd, 0, Size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*Page)(unsafe.Pointer(&memory[0])), nil
}

// These methods are repolock's.

// Watch names the group. It must be called before the first Allow.
func (p *Page) Watch(pgid int, e Expiry) {
	p.pgid.Store(int32(pgid))
	p.expiry.Store(int32(e))
}

// Allow writes the allowance, as a new version.
func (p *Page) Allow(a Allowance) {
	v := p.version.Load() + 1
	for i, d := range []time.Duration{a.Until, a.Seen.Wall, a.Seen.Elapsed} {
		p.slots[v%2][i].Store(int64(d))
	}
	p.version.Store(v)
}

// Pause sets whether the group must be stopped whatever its allowance is. After Pause(false) the next Allow must be
// followed before the group is continued.
func (p *Page) Pause(on bool) {
	var v uint32
	if on {
		v = 1
	}
	p.paused.Store(v)
}

// Continue notes that repolock is going to send SIGCONT.
func (p *Page) Continue() { p.sigconts.Add(1) }

// SIGCONTs returns how often Continue was called. The guard calls it, too.
func (p *Page) SIGCONTs() uint32 { return p.sigconts.Load() }

// Continued returns how often another process has continued the group since it may not run. If that is more than
// MostContinued, the guard has killed the group.
func (p *Page) Continued() int { return int(p.continued.Load()) }

// Anchor returns the pid of the guard's process in the stopped group, or 0.
func (p *Page) Anchor() int { return int(p.anchor.Load()) }

// Follows reports whether the guard follows this version or a later one. If so, it sends no signal because of an
// earlier one.
func (p *Page) Follows(version uint32) bool { return int32(p.followed.Load()-version) >= 0 }

// FollowsCurrent reports whether the guard follows the current version.
func (p *Page) FollowsCurrent() bool { return p.Follows(p.Version()) }

// Stops returns how often a guard has stopped the group. A stop that is under way doesn't count yet.
func (p *Page) Stops() uint32 { return p.stopsDone.Load() }

// GuardDied counts a stop that was under way when the guard died. It must be called when the guard was reaped, and
// before the next guard starts.
func (p *Page) GuardDied() { p.stopsDone.Store(p.stopsBegun.Load()) }

// Version returns the version of the current allowance, or 0 while there is none. The guard calls it, too.
func (p *Page) Version() uint32 { return p.version.Load() }

// These methods are the guard's.

// allowance reads the current allowance and its version.
func (p *Page) allowance() (a Allowance, version uint32) {
	for {
		v := p.version.Load()
		d := func(i int) time.Duration { return time.Duration(p.slots[v%2][i].Load()) }
		a = Allowance{d(0), clock.Reading{Wall: d(1), Elapsed: d(2)}}
		if p.version.Load() == v {
			return a, v
		}
	}
}

// Follow notes that the guard follows a version.
func (p *Page) Follow(version uint32) { p.followed.Store(version) }

// Stop calls stop, which stops the group, and counts the stop before and after it.
func (p *Page) Stop(stop func()) {
	p.stopsBegun.Add(1)
	stop()
	p.stopsDone.Add(1)
}
