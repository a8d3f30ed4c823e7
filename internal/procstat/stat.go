// Package procstat reads what Linux shows of a process in /proc/PID/stat: proc_pid_stat(5).
package procstat

// Stat is a process, or one of its threads.
type Stat struct {
	State         string // a letter
	Parent, Group int
	// Forked: it has executed no program since it was forked, or the system hides that.
	Forked bool
	// Start is the time of its start since boot, in clock ticks.
	Start uint64
	// Ended: it runs no more, but its parent has not reaped it. In a container whose
	// process 1 is no init, the parent never does.
	Ended bool
}
