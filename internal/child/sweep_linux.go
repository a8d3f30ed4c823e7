package child

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sweep reaps the orphans that we have adopted, as every process 1 must, and
// once the leader has ended it returns how many processes of its group run on:
// -1 if some do and nobody can tell how many.
//
// Other children of our process belong to whoever started them (os/exec): they
// are in our own group, and orphans of the command are not.
func sweep(l *leader) int {
	if _, dead := look(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT); !dead && !l.ended {
		return -1
	}
	n, ok := sweepOnce(l.pid)
	if ok && n == 0 {
		// One could have started another and ended after the list was read.
		n, ok = sweepOnce(l.pid)
	}
	if ok || !l.ended {
		return n
	}

	// Without /proc the leader can't stay: its zombie looks like a member.
	l.reap()
	for {
		pid, err := unix.Wait4(-l.pid, nil, unix.WNOHANG, nil)
		if err != unix.EINTR && pid <= 0 {
			break
		}
	}
	if unix.Kill(-l.pid, 0) == unix.ESRCH {
		return 0
	}
	return -1
}

// listed is for tests, which have processes start and end there.
var listed = func() {}

func sweepOnce(pgid int) (members int, ok bool) {
	us := os.Getpid()
	// In a namespace of processes with the /proc of another, numbers lie.
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(us) {
		return 0, false
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return 0, false
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return 0, false
	}
	listed()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == us {
			continue
		}
		group, err := unix.Getpgid(pid)
		if err != nil {
			continue // ended meanwhile
		}
		if _, dead := look(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT); dead {
			if group != unix.Getpgrp() {
				reapOrphan(pid)
			}
		} else if group == pgid {
			// Somebody else's zombie has only its parent to wait for.
			if p, ok := readStat(name); ok && !p.dead {
				members++
			}
		}
	}
	return members, true
}

// reapOrphan reaps a zombie of ours that nobody else waits for.
func reapOrphan(pid int) {
	owned.Lock()
	defer owned.Unlock()
	if !owned.pids[pid] {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}

type stat struct {
	state         string
	parent, group int
	dead          bool
}

// readStat reads what proc_pid_stat(5) says of a process.
func readStat(pid string) (s stat, ok bool) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return s, false
	}
	// The second field is the name in parentheses; it may contain anything.
	line := string(text)
	f := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(f) < 18 {
		return s, false
	}
	s.state = f[0]
	s.parent, _ = strconv.Atoi(f[1])
	s.group, _ = strconv.Atoi(f[2])
	// A process whose first thread has ended is shown as a zombie too, but it
	// has more threads.
	s.dead = (f[0] == "Z" || f[0] == "X") && (f[17] == "1" || f[17] == "0")
	return s, true
}
