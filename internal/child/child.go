// Package child has the processes that this process has started and that it reaps itself. A search
// for the orphans of a command must leave them alone.
package child

import "sync"

// Owned are the children that their starter reaps. A starter holds the mutex while it starts a process and adds
// its id, so that a search sees no child that isn't added yet.
var Owned = struct {
	sync.Mutex
	PIDs map[int]bool
}{PIDs: map[int]bool{}}

// Start calls start, and adds the process that it has started.
func Start(start func() (pid int, err error)) (int, error) {
	Owned.Lock()
	defer Owned.Unlock()
	pid, err := start()
	if err == nil {
		Owned.PIDs[pid] = true
	}
	return pid, err
}

// Disown removes a process that was reaped.
func Disown(pid int) {
	Owned.Lock()
	defer Owned.Unlock()
	delete(Owned.PIDs, pid)
}
