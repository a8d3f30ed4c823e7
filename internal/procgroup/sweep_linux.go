package procgroup

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procstat"
)

// sweep reaps the orphans that we have adopted, as every process 1 must. Once the leader has
// ended, it returns how many processes of its group run on, or -1 if some do and they can't
// be counted.
//
// It leaves other children of our process to the code that started them (os/exec): they are
// in our own group, and orphans of the command are not.
func sweep(l *leader) int {
	if _, dead := look(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT); !dead && !l.ended {
		return -1
	}
	n, ok := sweepOnce(l.pid)
	if ok && n == 0 {
		// A process could have started another and ended after the list was read.
		n, ok = sweepOnce(l.pid)
	}
	if ok || !l.ended {
		return n
	}

	// Without /proc we must reap the leader first: its zombie looks like a member.
	l.reap()
	for pid, err := 1, error(nil); pid > 0 || err == unix.EINTR; {
		pid, err = unix.Wait4(-l.pid, nil, unix.WNOHANG, nil)
	}
	if unix.Kill(-l.pid, 0) == unix.ESRCH {
		return 0
	}
	return -1
}

// listed is for tests, which start and end processes here.
var listed = func() {}

func sweepOnce(pgid int) (members int, ok bool) {
	us := os.Getpid()
	// Don't trust the /proc of another pid namespace: its numbers are other processes.
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(us) {
		return 0, false
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, false
	}
	listed()
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
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
			// Don't count another parent's zombie: only that parent can reap it.
			if p, ok := procstat.Read(e.Name()); ok && !p.Ended {
				members++
			}
		}
	}
	return members, true
}

// reapOrphan reaps a zombie of ours, unless this package reaps it elsewhere.
func reapOrphan(pid int) {
	owned.Lock()
	defer owned.Unlock()
	if !owned.pids[pid] {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}
