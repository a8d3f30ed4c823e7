package procstat

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Read reads the state of the process "PID", or of the thread "PID/task/TID". It reports false only
// if the process certainly doesn't exist: in doubt, a process counts as alive. A field that it can't
// read is zero.
func Read(name string) (Stat, bool) {
	text, err := os.ReadFile("/proc/" + name + "/stat")
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH) {
		return Stat{}, false
	}
	return parse(string(text)), true
}

// parse counts the fields from the last parenthesis on. The name of the program, in parentheses before these
// fields, can itself contain spaces and parentheses.
func parse(line string) Stat {
	const state, parent, group, flags, threads, start = 0, 1, 2, 6, 17, 19 // fields 3, 4, 5, 9, 20 and 22
	f := append(strings.Fields(line[strings.LastIndexByte(line, ')')+1:]), make([]string, start+1)...)
	s := Stat{State: f[state]}
	s.Parent, _ = strconv.Atoi(f[parent])
	s.Group, _ = strconv.Atoi(f[group])
	bits, _ := strconv.ParseUint(f[flags], 10, 64)
	const forkNoExec = 0x40 // PF_FORKNOEXEC of include/linux/sched.h
	s.Forked = bits == 0 || bits&forkNoExec != 0
	// While other threads run, a process whose first thread has ended looks like a zombie.
	s.Ended = (s.State == "Z" || s.State == "X") && (f[threads] == "1" || f[threads] == "0")
	s.Start, _ = strconv.ParseUint(f[start], 10, 64)
	return s
}
