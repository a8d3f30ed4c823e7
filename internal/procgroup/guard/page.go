//go:build unix

package guard

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/repolock/repolock/internal/clock"
)

// Page is the memory that repolock shares with its guards, one after the other. repolock writes the group and the
// allowance, and the guard the rest. An allowance is complete before its version is stored, and stays in its slot
// until the version after the next. So a reader never gets a mix of two allowances, even if repolock is stopped or
// killed while it writes.
type Page struct {
	pgid, expiry atomic.Int32
	version      atomic.Uint32 // of the allowance, which is in slots[version%2]; 0: there is none yet
	followed     atomic.Uint32 // the version that the guard follows
	stops        atomic.Uint32 // counts up before and after each stop of the group: it is odd in between
	slots        [2][3]atomic.Int64
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

// allowance reads the allowance and its version.
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

// Version returns the version of the last allowance.
func (p *Page) Version() uint32 { return p.version.Load() }

// Follow notes that the guard follows a version.
func (p *Page) Follow(version uint32) { p.followed.Store(version) }

// Follows reports whether the guard follows this version or a later one. After that, it doesn't stop the group
// because of an earlier one.
func (p *Page) Follows(version uint32) bool { return int32(p.followed.Load()-version) >= 0 }

// Stop calls stop, which stops the group, and counts the stop.
func (p *Page) Stop(stop func()) {
	p.stops.Add(1)
	stop()
	p.stops.Add(1)
}

// Stops returns how often a guard has stopped the group. Until a stop is over, it isn't counted. dead means that
// the guard has ended. If it ended during a stop, Stops counts that stop, too.
func (p *Page) Stops(dead bool) uint32 {
	if n := p.stops.Load(); dead && n%2 == 1 {
		p.stops.Store(n + 1)
	}
	return p.stops.Load() / 2
}
