package main

import (
	"fmt"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/fault"
)

// failVariable names the system call that fails in repolock, and its error: "create 28".
const failVariable = "REPOLOCK_TEST_FAIL"

// TestOnlySilentFileSystemIsUnreachable is TestOnlySilenceIsUnreachable in a directory: a command is run bare if the
// server of its file system doesn't answer, and for no other error. (Package dir tests all errors.) A seccomp filter
// makes the kernel return the errors. Only the repository's files are created exclusively here.
func TestOnlySilentFileSystemIsUnreachable(t *testing.T) {
	t.Parallel()
	type row struct {
		err  unix.Errno
		code int
		bare bool
	}
	for call, rows := range map[string][]row{
		"create": {
			{unix.ENOSPC, fault.ExitFailed, false}, {unix.EIO, fault.ExitFailed, false}, {unix.EROFS, fault.ExitPermission, false}, {unix.EACCES, fault.ExitPermission, false},
			{unix.ESTALE, fault.ExitFailed, false}, {unix.ETIMEDOUT, fault.ExitUnavailable, false}, // repolock could remove its file, if it had written one
		},
		"list": {{unix.EACCES, fault.ExitPermission, false}, {unix.ESTALE, fault.ExitFailed, false}, {unix.ETIMEDOUT, fault.ExitUnavailable, false}}, // it has taken the flag
		"look": {
			{unix.EIO, fault.ExitFailed, false}, {unix.EACCES, fault.ExitPermission, false}, {unix.ESTALE, fault.ExitFailed, false},
			{unix.ENOTCONN, fault.ExitUnavailable, true}, {unix.ETIMEDOUT, fault.ExitUnavailable, true},
		},
	} {
		for _, c := range rows {
			name := unix.ErrnoName(c.err)
			t.Run(call+"/"+name, func(t *testing.T) {
				t.Parallel()
				onlySilenceRunsBare(t, t.TempDir(), []string{fmt.Sprintf("%s=%s %d", failVariable, call, c.err)}, c.code, c.bare)
			})
		}
	}
}

func init() {
	if what := os.Getenv(failVariable); what != "" {
		if err := failCalls(what); err != nil {
			panic(err)
		}
	}
}

// failCalls makes the kernel refuse a system call to this process and its children.
func failCalls(what string) error {
	var call string
	var errno uint32
	if _, err := fmt.Sscan(what, &call, &errno); err != nil {
		return err
	}
	refused, ok := map[string]struct{ number, arg, flags uint32 }{
		"create": {unix.SYS_OPENAT, 2, unix.O_CREAT | unix.O_EXCL},
		"list":   {unix.SYS_GETDENTS64, 0, 0},
		"look":   {unix.SYS_NEWFSTATAT, 3, unix.AT_SYMLINK_NOFOLLOW},
	}[call]
	if !ok {
		return fmt.Errorf("no such call: %q", call)
	}
	const (
		number, arch, args = 0, 4, 16 // in struct seccomp_data
		load               = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		and                = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		equal              = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		result             = unix.BPF_RET | unix.BPF_K
	)
	program := []unix.SockFilter{
		{Code: load, K: arch},
		{Code: equal, K: unix.AUDIT_ARCH_X86_64, Jf: 6},
		{Code: load, K: number},
		{Code: equal, K: refused.number, Jf: 4},
		{Code: load, K: args + 8*refused.arg},
		{Code: and, K: refused.flags},
		{Code: equal, K: refused.flags, Jf: 1},
		{Code: result, K: unix.SECCOMP_RET_ERRNO | errno},
		{Code: result, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	if err != 0 {
		return err
	}
	return nil
}
