// Package identity names a process so that a process on another machine, after a reboot, or
// in another container can compare it.
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

// Process is replock.Process, which has the same fields. Its JSON is part of a lock's body.
// PIDNamespace: pid_namespaces(7). TimeNamespace: each time namespace adds an offset of its own
// to the clocks, also to the start times that the system shows of processes in another one:
// time_namespaces(7).
type Process struct {
	Hostname      string `json:"-"`
	HostID        string `json:"host_id,omitempty"`
	BootID        string `json:"boot_id,omitempty"`
	PID           int    `json:"pid,omitempty"`
	PIDNamespace  string `json:"pid_namespace,omitempty"`
	TimeNamespace string `json:"time_namespace,omitempty"`
	PIDStart      uint64 `json:"pid_start,omitempty"`
	User          string `json:"user,omitempty"`
}

// Self names this process.
func Self() Process {
	host, _ := os.Hostname()
	own, _ := readStat(os.Getpid())
	return Process{
		Hostname: cmp.Or(host, "localhost"), HostID: hash(machineID()), BootID: bootID(), PID: os.Getpid(),
		PIDNamespace: pidNamespace(), TimeNamespace: timeNamespace(), PIDStart: own.Start, User: userName(),
	}
}

// Of names another process of this machine, without its user. It reports false if the
// process doesn't exist or is a zombie. TimeNamespace is ours, because we read PIDStart.
func Of(pid int) (Process, bool) {
	p := Self()
	of, _ := readStat(pid)
	p.PID, p.PIDStart, p.User = pid, of.Start, ""
	return p, pid > 0 && !p.Ended()
}

// Holder returns the process as the wire format names it.
func (p Process) Holder() string { return fmt.Sprintf("%s (pid %d)", p.Hostname, p.PID) }

// SameBoot reports whether both processes run, or ran, in the same boot of the same machine and
// in the same time namespace, so that they share the clock that counts since boot. (The kernel
// uses the number of a namespace again only after the last process in it has ended.)
func (p Process) SameBoot(q Process) bool {
	return p.BootID != "" && p.BootID == q.BootID && p.TimeNamespace != "" && p.TimeNamespace == q.TimeNamespace
}

// Rebooted reports whether q ran in another boot of this machine, and so has certainly ended.
func (p Process) Rebooted(q Process) bool {
	return p.HostID != "" && p.HostID == q.HostID && p.BootID != "" && q.BootID != "" && p.BootID != q.BootID
}

// Gone reports whether q, seen from p, has certainly ended: q was a process of this very
// machine, boot, time namespace and pid namespace, and has Ended. Machines that were restored from
// one snapshot of a running machine share its boot id, so the ids of both machines must be known and
// equal. (Two such machines with one machine id can't be distinguished.)
func (p Process) Gone(q Process) bool {
	if p.HostID == "" || p.HostID != q.HostID || !p.SameBoot(q) || p.PIDNamespace == "" || p.PIDNamespace != q.PIDNamespace || q.PID <= 0 {
		return false
	}
	return q.Ended()
}

// Ended reports whether p, which must be of this machine, boot and pid namespace, doesn't exist,
// is a zombie, or its pid is another process now. On systems other than Linux, and in another
// time namespace than that of PIDStart, it takes another process with its pid for p.
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

// hash returns a hash of the machine's id, which itself must not be published: machine-id(5).
func hash(machineID string) string {
	if machineID == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("repolock host id\x00" + machineID))
	return hex.EncodeToString(sum[:16])
}
