// Package identity names a process so that a process on another machine, in another container, or
// after a reboot can find out whether it still runs.
package identity

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/repolock/repolock/internal/procstat"
)

// Process identifies a process. Its JSON is part of a lock's body. A field is empty or zero if the
// system doesn't have it.
type Process struct {
	Hostname string `json:"-"`
	// HostID is a hash of the machine's id.
	HostID string `json:"host_id,omitempty"`
	// BootID is new with each boot of the machine, and the same in all its containers.
	BootID string `json:"boot_id,omitempty"`
	PID    int    `json:"pid,omitempty"`
	// PIDNamespace identifies the pid namespace: in another namespace the PID names another process.
	PIDNamespace string `json:"pid_namespace,omitempty"`
	// TimeNamespace identifies the time namespace, or is "none" on a kernel that has none. Each namespace adds its
	// own offset to the clocks, and to the start times that its processes read.
	TimeNamespace string `json:"time_namespace,omitempty"`
	// PIDStart is the start time of the process in the system's own unit. It distinguishes
	// the process from a later one with the same PID.
	PIDStart uint64 `json:"pid_start,omitempty"`
	// User is the name of the process's user.
	User string `json:"user,omitempty"`
}

// Self returns this process.
func Self() Process {
	host, _ := os.Hostname()
	own, _ := readStat(os.Getpid())
	return Process{
		Hostname: cmp.Or(host, "localhost"), HostID: hash(machineID()), BootID: bootID(), PID: os.Getpid(),
		PIDNamespace: pidNamespace(), TimeNamespace: timeNamespace(), PIDStart: own.Start, User: userName(),
	}
}

// Of returns another process of this machine, without its user. It reports false if the process
// doesn't exist or is a zombie. TimeNamespace is our own, because PIDStart is the start time as we read it.
func Of(pid int) (Process, bool) {
	p := Self()
	of, _ := readStat(pid)
	p.PID, p.PIDStart, p.User = pid, of.Start, ""
	return p, pid > 0 && !p.Ended()
}

// Holder returns the name of the process in the body of a lock.
func (p Process) Holder() string { return fmt.Sprintf("%s (pid %d)", p.Hostname, p.PID) }

// SameBoot reports whether both processes read the same clock since boot: they run, or ran, in one
// boot of one machine, and in one time namespace. (The kernel can reuse a namespace's number, but only
// after all its processes have ended.)
func (p Process) SameBoot(q Process) bool {
	return p.BootID != "" && p.BootID == q.BootID && p.TimeNamespace != "" && p.TimeNamespace == q.TimeNamespace
}

// Rebooted reports whether q has certainly ended because p's machine was rebooted since.
func (p Process) Rebooted(q Process) bool {
	return p.HostID != "" && p.HostID == q.HostID && p.BootID != "" && q.BootID != "" && p.BootID != q.BootID
}

// Gone reports whether q has certainly ended. p must be this process. Gone reports false unless q is of the same
// machine, boot, time namespace and pid namespace. It compares the machine's id, too, because all machines that
// were restored from one snapshot share a boot id. (Two of them with one machine id can't be distinguished.)
func (p Process) Gone(q Process) bool {
	if p.HostID == "" || p.HostID != q.HostID || !p.SameBoot(q) || p.PIDNamespace == "" || p.PIDNamespace != q.PIDNamespace || q.PID <= 0 {
		return false
	}
	return q.Ended()
}

// Ended reports whether p, a process of this machine, boot and pid namespace, doesn't exist any more
// or is a zombie. On Linux, Ended notices that another process has p's pid now, if PIDStart was read in our
// own time namespace.
func (p Process) Ended() bool {
	if !exists(p.PID) {
		return true
	}
	now, _ := readStat(p.PID)
	if now.Start == 0 || p.PIDStart == 0 {
		return false
	}
	sameClock := p.TimeNamespace != "" && p.TimeNamespace == timeNamespace()
	return now.Ended || sameClock && now.Start != p.PIDStart
}

// readStat is a variable for tests.
var readStat = func(pid int) (procstat.Stat, bool) { return procstat.Read(strconv.Itoa(pid)) }

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}

// hash hides the machine's id, which must not be published: machine-id(5).
func hash(machineID string) string {
	if machineID == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("repolock host id\x00" + machineID))
	return hex.EncodeToString(sum[:16])
}
