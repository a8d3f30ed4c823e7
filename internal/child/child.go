// Package child has the children that this process has started and reaps itself. A search for the orphans of
// a command must leave them alone.
package child

import "sync"

// Owned has the pids of these children. Start holds the mutex until it has added the pid of a new child. A
// search holds it too, so that it doesn't treat such a child as an orphan.
var Owned = struct {
	sync.Mutex
	PIDs map[int]bool
}{PIDs: map[int]bool{}}

// Start calls start, and adds the pid of the child that it has started.
func Start(start func() (pid int, err error)) (int, error) {
	Owned.Lock()
	defer Owned.Unlock()
	pid, err := start()
	if err == nil {
		Owned.PIDs[pid] = true
	}
	return pid, err
}

// Disown removes the pid of a child that was reaped.
func Disown(pid int) {
	Owned.Lock()
	defer Owned.Unlock()
	delete(Owned.PIDs, pid)
}
