package procgroup

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procstat"
)

// sweep reaps the orphans that we have adopted, as a process 1 must. After the leader's end it returns the
// number of processes of the group that still run, or -1 if it can't count them.
//
// sweep doesn't reap children in our own group: the code that started them (os/exec) reaps them. Orphans of
// the command are in other groups.
func sweep(l *leader) int {
	if _, dead := look(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT); !dead && !l.ended {
		return -1
	}
	n, ok := sweepOnce(l.pid)
	if ok && n == 0 {
		// After the list was read, a process could have started another and ended.
		n, ok = sweepOnce(l.pid)
	}
	if ok || !l.ended {
		return n
	}

	// Without /proc we must reap the leader first: kill(2) takes a zombie for a running member.
	l.reap()
	for pid, err := 1, error(nil); pid > 0 || err == unix.EINTR; {
		pid, err = unix.Wait4(-l.pid, nil, unix.WNOHANG, nil)
	}
	if unix.Kill(-l.pid, 0) == unix.ESRCH {
		return 0
	}
	return -1
}

// listed lets tests start and end processes after the list was read.
var listed = func() {}

func sweepOnce(pgid int) (members int, ok bool) {
	us := os.Getpid()
	// /proc can be mounted from another pid namespace, where pids name other processes.
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
			// A zombie of another parent doesn't count: only that parent can reap it.
			if p, ok := procstat.Read(e.Name()); ok && !p.Ended {
				members++
			}
		}
	}
	return members, true
}

// reapOrphan reaps a zombie, unless await will.
func reapOrphan(pid int) {
	owned.Lock()
	defer owned.Unlock()
	if !owned.pids[pid] {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}
