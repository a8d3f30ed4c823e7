// Package identity tells which process this is, in terms that a process on
// another machine, or after a reboot, or in another container can compare.
package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// Process names a process. Fields are empty or zero where the system doesn't
// tell them.
type Process struct {
	Hostname string
	// HostID is a hash of the machine's id, which itself must not be published:
	// machine-id(5).
	HostID string
	// BootID is new with each boot of the machine, and the same in all its
	// containers.
	BootID string
	PID    int
	// PIDNamespace tells containers apart, in which the same pid is another
	// process: pid_namespaces(7).
	PIDNamespace string
	// TimeNamespace names the clocks that PIDStart and the time since boot were
	// read on: each time namespace adds an offset of its own to them, also to the
	// start times that the system shows of processes in another one:
	// time_namespaces(7). It is "none" on a kernel that has no such thing.
	TimeNamespace string
	// PIDStart is when the process started, in the system's own unit: it tells
	// a process from a later one with the same pid.
	PIDStart uint64
	User     string
}

// Self names this process.
func Self() Process {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	p := Process{Hostname: host, PID: os.Getpid(), User: userName()}
	p.HostID = hash(machineID())
	p.BootID = bootID()
	p.PIDNamespace = pidNamespace()
	p.TimeNamespace = timeNamespace()
	own, _ := readStat(p.PID)
	p.PIDStart = own.start
	return p
}

// Of names another process of this machine, if there is one: a zombie is none. Its user
// isn't told. Its TimeNamespace is ours, because we read its PIDStart.
func Of(pid int) (Process, bool) {
	p := Self()
	p.PID, p.PIDStart, p.User = pid, 0, ""
	if s, ok := readStat(pid); ok {
		p.PIDStart = s.start
	}
	return p, pid > 0 && !p.Ended()
}

// Holder is how the wire format names a process.
func (p Process) Holder() string { return fmt.Sprintf("%s (pid %d)", p.Hostname, p.PID) }

// SameBoot reports whether both processes run, or ran, in the same boot of the
// same machine and in the same time namespace, so that they share the clock that
// counts since boot. If one of them doesn't name its time namespace they don't.
// (The kernel uses the number of a namespace again only after the last process in
// it has ended, so that a holder in an earlier one has ended as well.)
func (p Process) SameBoot(q Process) bool {
	return p.BootID != "" && p.BootID == q.BootID && p.TimeNamespace != "" && p.TimeNamespace == q.TimeNamespace
}

// Gone reports whether q, seen from p, is certainly no more: a process of this
// very machine, boot, time namespace and pid namespace that doesn't exist, or is a zombie, or whose
// pid is another process by now. In any doubt it is not gone. (What can't be told
// apart are two machines that were restored from one snapshot of a running one: they
// have the same boot id.)
func (p Process) Gone(q Process) bool {
	if !p.SameBoot(q) || p.PIDNamespace == "" || p.PIDNamespace != q.PIDNamespace || q.PID <= 0 {
		return false
	}
	return q.Ended()
}

// Ended reports whether p, which must be of this machine, boot and pid namespace, is no
// more: see Gone. A later process with the same pid passes for it elsewhere than on
// Linux, and where this process isn't in the time namespace that PIDStart was read in.
func (p Process) Ended() bool {
	if !exists(p.PID) {
		return true
	}
	now, ok := readStat(p.PID)
	if !ok || p.PIDStart == 0 {
		return false
	}
	sameClock := p.TimeNamespace != "" && p.TimeNamespace == timeNamespace()
	return now.zombie || sameClock && now.start != p.PIDStart
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}

func hash(machineID string) string {
	if machineID == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("repolock host id\x00" + machineID))
	return hex.EncodeToString(sum[:16])
}
