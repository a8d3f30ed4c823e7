// Package procstat reads the state of processes from /proc on Linux: proc_pid_stat(5).
package procstat

// Stat is a process, or one of its threads.
type Stat struct {
	State         string // the letter of proc_pid_stat(5)
	Parent, Group int    // the parent's pid, and the id of the process group
	// Forked is set if the process has executed no program since fork(2), or if the system doesn't report this.
	Forked bool
	// Start is when the process was started, in clock ticks since boot.
	Start uint64
	// Ended is set for a zombie: a process that has ended, and that its parent hasn't reaped. In a container
	// whose process 1 isn't an init, orphans stay zombies.
	Ended bool
}
