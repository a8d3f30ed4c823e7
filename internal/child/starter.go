//go:build unix

package child

import (
	"encoding/binary"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// starterArg makes our own program the starter: the process that becomes the
// command, once its gate is opened. fork(2) and execve(2) can't be told apart in
// Go, and whoever is stopped between them, or right after, has a command that runs
// and that no guard has heard of. So what is forked first is the starter, and the
// gate is opened when the guard knows its group.
const starterArg = "__repolock-starter"

// starterMain is the starter's life: starterArg, its gate and its result as
// numbers of files, the path, and the command's arguments. If nobody opens the gate
// any more it just ends.
func starterMain(args []string) {
	gate, result := descriptor(args[0]), descriptor(args[1])
	unix.CloseOnExec(gate)
	unix.CloseOnExec(result)
	if n, _ := ignoringEINTR(func() (int, error) { return unix.Read(gate, make([]byte, 1)) }); n != 1 {
		os.Exit(1)
	}
	err := syscall.Exec(args[2], args[3:], os.Environ())
	var errno syscall.Errno
	if e, ok := err.(syscall.Errno); ok {
		errno = e
	}
	_, _ = unix.Write(result, binary.NativeEndian.AppendUint32(nil, uint32(errno)))
	os.Exit(126)
}

func descriptor(arg string) int {
	fd, err := strconv.Atoi(arg)
	if err != nil {
		os.Exit(1)
	}
	return fd
}

func ignoringEINTR(f func() (int, error)) (int, error) {
	for {
		if n, err := f(); err != unix.EINTR {
			return n, err
		}
	}
}

// gate is our side of a starter.
type gate struct {
	opens  int // written to by us: execute
	result int // read by us: why it couldn't, or an end
}

// close lets a starter end whose gate wasn't opened.
func (g gate) close() {
	_ = unix.Close(g.opens)
	_ = unix.Close(g.result)
}

// open lets the starter execute the command.
func (g gate) open() error {
	_, err := ignoringEINTR(func() (int, error) { return unix.Write(g.opens, []byte{1}) })
	return err
}

// executed waits until the command runs, and returns why if it can't. A starter
// that was killed counts as a command that was.
func (g gate) executed() error {
	raw := make([]byte, 4)
	if n, _ := ignoringEINTR(func() (int, error) { return unix.Read(g.result, raw) }); n == len(raw) {
		return syscall.Errno(binary.NativeEndian.Uint32(raw))
	}
	return nil
}

// spawnStarter forks the starter of a command, whose files, group and terminal are
// those of attr.
func spawnStarter(path string, args []string, attr *syscall.ProcAttr) (int, gate, error) {
	var theirGate, theirResult [2]int // read, write
	if err := pipe(&theirGate); err != nil {
		return 0, gate{}, err
	}
	defer unix.Close(theirGate[0])
	if err := pipe(&theirResult); err != nil {
		_ = unix.Close(theirGate[1])
		return 0, gate{}, err
	}
	defer unix.Close(theirResult[1])
	g := gate{opens: theirGate[1], result: theirResult[0]}

	// They keep their numbers in the starter, so that no file that we inherited for
	// the command gives way to them.
	argv := []string{os.Args[0], starterArg, strconv.Itoa(theirGate[0]), strconv.Itoa(theirResult[1]), path}
	pid, err := spawn(guardProgram(), append(argv, args...), attr, theirGate[0], theirResult[1])
	if err != nil {
		g.close()
		return 0, gate{}, err
	}
	return pid, g, nil
}

// pipe makes a pipe that no process inherits.
func pipe(fds *[2]int) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(fds[:]); err != nil {
		return err
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return nil
}
