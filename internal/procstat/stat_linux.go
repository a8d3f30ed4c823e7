package procstat

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Read reads a process, given as its pid, or a thread, given as pid/task/tid. It reports
// false only if there is certainly no such process: in doubt, a process counts as alive. A
// field that it can't read is zero.
func Read(name string) (Stat, bool) {
	text, err := os.ReadFile("/proc/" + name + "/stat")
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH) {
		return Stat{}, false
	}
	return parse(string(text)), true
}

// parse counts fields from the last parenthesis: the second field is the command's name in
// parentheses, which can contain anything.
func parse(line string) Stat {
	const state, parent, group, flags, threads, start = 0, 1, 2, 6, 17, 19 // fields 3, 4, 5, 9, 20 and 22
	f := append(strings.Fields(line[strings.LastIndexByte(line, ')')+1:]), make([]string, start+1)...)
	s := Stat{State: f[state]}
	s.Parent, _ = strconv.Atoi(f[parent])
	s.Group, _ = strconv.Atoi(f[group])
	bits, _ := strconv.ParseUint(f[flags], 10, 64)
	const forkNoExec = 0x40 // PF_FORKNOEXEC of include/linux/sched.h
	s.Forked = bits == 0 || bits&forkNoExec != 0
	// A process whose first thread has ended looks like a zombie, but has more threads.
	s.Ended = (s.State == "Z" || s.State == "X") && (f[threads] == "1" || f[threads] == "0")
	s.Start, _ = strconv.ParseUint(f[start], 10, 64)
	return s
}
