package daemon

import (
	"os"
	"time"

	"github.com/repolock/repolock/internal/identity"
)

// Owner is the process that a keeper is tied to.
type Owner struct {
	process identity.Process
	handle  *os.Process
	ended   chan struct{}
}

// Watch watches a process, which can have ended already. Only on Linux it distinguishes the process
// from a later one with the same pid.
func Watch(p identity.Process) *Owner {
	o := &Owner{process: p, ended: make(chan struct{})}
	// If p still runs when we have the handle, the handle is for p, not for a later process.
	handle, err := os.FindProcess(p.PID)
	if err == nil && !p.Ended() {
		o.handle = handle
	}
	go o.watch()
	return o
}

// Ended is closed when the process has ended.
func (o *Owner) Ended() <-chan struct{} { return o.ended }

// Signal sends the process a signal, if it hasn't ended.
func (o *Owner) Signal(sig os.Signal) error {
	if o.handle == nil || o.process.Ended() {
		return os.ErrProcessDone
	}
	return o.handle.Signal(sig)
}

// interval is the time between two looks at the process on systems without pidfds.
const interval = time.Second

func (o *Owner) watch() {
	defer close(o.ended)
	if o.handle == nil {
		return
	}
	ended := false
	_ = o.handle.WithHandle(func(handle uintptr) { ended = wait(handle) }) // fails without a pidfd
	for !ended && !o.process.Ended() {
		time.Sleep(interval)
	}
}
