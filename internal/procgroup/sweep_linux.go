package procgroup

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/procstat"
)

// sweep reaps the orphans that we have adopted, as a process 1 must. After the leader's end it returns the number of
// processes of the group that run: 0 if none is left, or -1 if some are left and it can't count them.
//
// sweep doesn't reap children in our own group, because the code that started them (os/exec) reaps them. Orphans of
// the command are in other groups.
func sweep(l *leader) int {
	dead, some := pollWait(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
	for some && reapOrphan(int(dead.pid)) {
		dead, some = pollWait(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
	}
	if !some && !l.ended {
		return -1
	}
	if n, sure := sweepChildren(l.pid); sure {
		return n
	}
	n, ok := sweepOnce(l.pid, l.anchor())
	if ok && n == 0 {
		// After the list was read, a process could have started another and ended.
		n, ok = sweepOnce(l.pid, l.anchor())
	}
	if ok || !l.ended {
		return n
	}

	// Without /proc only kill(2) shows whether the group is empty. kill(2) counts a zombie as a member, so reap all zombies.
	l.reap()
	for pid, err := 1, error(nil); pid > 0 || err == unix.EINTR; {
		pid, err = unix.Wait4(-l.pid, nil, unix.WNOHANG, nil)
	}
	if unix.Kill(-l.pid, 0) == unix.ESRCH {
		return 0
	}
	return -1
}

// sweepChildren reaps orphans, and counts the members of the group among our children. sure reports whether the
// count shows if the group is empty: it does if a member runs. It also does if we have no child but the ended leader,
// the guard and the backstop, because a process of the command would be a child that we have adopted, or a descendant
// of one. But a child that has left the group might have children in it, so with such a child sure is false.
//
// sweepChildren reads a few files. All of /proc would take 6 µs for each process of the machine.
func sweepChildren(pgid int) (members int, sure bool) {
	for {
		pids, ok := adopted(children)
		if !ok {
			return 0, false
		}
		sure, reaped := true, false
		members = 0
		for _, pid := range pids {
			if reapOrphan(pid) {
				reaped = true // its children are ours now
			} else if group, err := unix.Getpgid(pid); err == nil && group == pgid {
				members++
			} else {
				sure = false
			}
		}
		if !reaped {
			return members, sure || members > 0
		}
	}
}

// adopted returns our children, except for the children that await reaps. The kernel lists the children of each of
// our threads: proc_pid_task_children(5). If a child is reaped, or a thread ends, while a list is read, the list can
// be incomplete. Then the next reading differs. So adopted reads the lists until two readings are equal.
func adopted(children func() ([]string, error)) (pids []int, ok bool) {
	var adopts int32
	if err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&adopts)), 0, 0, 0); err != nil || adopts == 0 {
		return nil, false
	}
	var last []string
	for range maxReadings {
		next, err := children()
		if err != nil {
			return nil, false
		}
		if slices.Equal(last, next) {
			owned.Lock()
			defer owned.Unlock()
			return slices.DeleteFunc(pidsIn(next), func(pid int) bool { return owned.PIDs[pid] }), true
		}
		last = next
	}
	return nil, false
}

// maxReadings bounds the readings if the lists change all the time.
const maxReadings = 10

// children returns a text for each of our threads: its id, followed by the ids of its children.
func children() (lists []string, err error) {
	if !ownProc() {
		return nil, unix.ESRCH
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	for _, t := range threads {
		list, err := readProc("/proc/self/task/" + t.Name() + "/children")
		if err != nil {
			return nil, err
		}
		lists = append(lists, t.Name()+" "+string(list))
	}
	return lists, nil
}

// readProc is os.ReadFile without the registration of the file with Go's poller, which takes longer than the rest.
func readProc(path string) (all []byte, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for buf := make([]byte, 512); ; {
		n, err := unix.Read(fd, buf)
		if err != nil && err != unix.EINTR {
			return nil, err
		}
		if all = append(all, buf[:max(n, 0)]...); n == 0 {
			return all, nil
		}
	}
}

// ownProc reports whether /proc shows our own pid namespace. It can be mounted from another namespace, whose pids name
// other processes.
func ownProc() bool {
	self, err := os.Readlink("/proc/self")
	return err == nil && self == strconv.Itoa(os.Getpid())
}

func pidsIn(lists []string) (pids []int) {
	for _, list := range lists {
		for _, word := range strings.Fields(list)[1:] {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// members returns the number of processes of the leader's group that run, or 0 if it is unknown.
func members(l *leader) int {
	n, _ := sweepOnce(l.pid, l.anchor())
	return n
}

// listed is a hook for tests. It runs after the list of processes was read, and before their states are.
var listed = func() {}

func sweepOnce(pgid, anchor int) (members int, ok bool) {
	if !ownProc() {
		return 0, false
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, false
	}
	listed()
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || pid == anchor {
			continue
		}
		group, err := unix.Getpgid(pid)
		if err != nil {
			continue // ended meanwhile
		}
		if _, dead := pollWait(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT); dead {
			reapOrphan(pid)
		} else if group == pgid {
			// A zombie of another parent doesn't count: only that parent can reap it.
			if p, ok := procstat.Read(e.Name()); ok && !p.Ended {
				members++
			}
		}
	}
	return members, true
}

// reapOrphan reaps a process if it is a zombie, and an orphan that we have adopted: await doesn't reap it, and it isn't
// in our own group.
func reapOrphan(pid int) (reaped bool) {
	owned.Lock()
	defer owned.Unlock()
	if group, err := unix.Getpgid(pid); err != nil || group == unix.Getpgrp() || owned.PIDs[pid] {
		return false
	}
	got, _ := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return got == pid
}
