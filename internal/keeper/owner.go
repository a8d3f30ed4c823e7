package keeper

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

// Watch watches a process, which may have ended already. It is told from a later one with
// the same pid on Linux alone.
func Watch(p identity.Process) *Owner {
	o := &Owner{process: p, ended: make(chan struct{})}
	// What the handle stands for is p if p hasn't ended after that.
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

// interval is how often a system is asked that doesn't tell by itself.
const interval = time.Second

func (o *Owner) watch() {
	defer close(o.ended)
	if o.handle == nil {
		return
	}
	ended := false
	_ = o.handle.WithHandle(func(handle uintptr) { ended = wait(handle) }) // or there is none
	for !ended && !o.process.Ended() {
		time.Sleep(interval)
	}
}
