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

// sweep reaps the orphans that we have adopted, as a process 1 must. After the leader's end it returns 0 if no
// process of the group runs. Otherwise it returns the number of running members that it has seen, or -1.
//
// sweep doesn't reap children in our own group: the code that started them (os/exec) reaps them. Orphans of
// the command are in other groups.
func sweep(l *leader) int {
	dead, some := look(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
	for some && reapOrphan(int(dead.pid)) {
		dead, some = look(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
	}
	if !some && !l.ended {
		return -1
	}
	if n, sure := sweepChildren(l.pid); sure {
		return n
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

// sweepChildren reaps orphans, and counts the members of the group among our children. sure is true if a member
// runs. It is also true if we have no child but the leader, the guard and the backstop: then no process of the
// command runs, because its parent would run, too, or we would have adopted it. A child that has left the group
// can have children in the group, so beside such a child sure is false.
//
// It reads a few files, and not all of /proc, which takes 6 µs for each process of the machine.
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

// adopted returns our children, except for the children that await reaps. It needs the kernel's lists of the
// children of each of our threads: proc_pid_task_children(5). A list is complete unless a child that is reaped, or
// a thread that ends, changes it while it is read. Then the next reading differs. So adopted reads the lists until
// two readings are equal.
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

// maxReadings bounds the readings of lists that change all the time.
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

// readProc is os.ReadFile without the registration for polls, which takes longer than the rest.
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

// ownProc reports whether /proc shows our own pid namespace. It can be mounted from another one, where pids name
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

// members returns the number of processes of a group that run, or 0 if it is unknown.
func members(pgid int) int {
	n, _ := sweepOnce(pgid)
	return n
}

// listed lets tests start and end processes after the list was read.
var listed = func() {}

func sweepOnce(pgid int) (members int, ok bool) {
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
		if err != nil || pid == os.Getpid() {
			continue
		}
		group, err := unix.Getpgid(pid)
		if err != nil {
			continue // ended meanwhile
		}
		if _, dead := look(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT); dead {
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

// reapOrphan reaps a process if it is a zombie that nothing else reaps: neither await, nor the code that has
// started it in our own group.
func reapOrphan(pid int) (reaped bool) {
	owned.Lock()
	defer owned.Unlock()
	if group, err := unix.Getpgid(pid); err != nil || group == unix.Getpgrp() || owned.PIDs[pid] {
		return false
	}
	got, _ := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return got == pid
}
