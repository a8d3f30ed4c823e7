// Package states shows tests whether processes run, are stopped, or are zombies.
package states

import "slices"

// process is a process as ps shows it. Its state is one letter.
type process struct {
	pid, group int
	state      string
}

// Of returns the state of a process: "T" if it is stopped, "Z" if it is a zombie, "" if there is
// none. A process whose first thread has ended while others still close its files runs on: "R".
func Of(pid int) string {
	all := processes()
	if i := slices.IndexFunc(all, func(p process) bool { return p.pid == pid }); i >= 0 {
		return all[i].state
	}
	return ""
}

// Stopped reports whether a process of a group is stopped by a signal. One is enough: a shell that is stopped
// while it starts another program waits for that program.
func Stopped(group int) bool {
	return slices.ContainsFunc(processes(), func(p process) bool { return p.group == group && p.state == "T" })
}
