//go:build unix

package procgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/repolock/repolock/internal/procgroup/starter"
)

// gate is our side of a starter. We write the command to out. The starter answers on in: with starter.Ready, and
// then with the error number if it couldn't execute the command. A starter whose gate is closed before open
// executes nothing, and ends.
type gate struct{ pipes }

// open makes the starter execute the command. A starter that reads only a part of the message executes nothing.
func (g gate) open(path string, args, env []string) {
	_, _ = g.out.Write(message(path, args, env))
	g.out.Close()
}

// message is the text that starter.Decode parses.
func message(path string, args, env []string) []byte {
	all := slices.Concat([]string{path}, args, env)
	text := fmt.Appendf(nil, "%d %d ", len(all), len(args))
	for _, s := range all {
		text = fmt.Appendf(text, "%d %s", len(s), s)
	}
	return text
}

// errStarter is returned when the starter ended before it executed the command, perhaps because Go's
// runtime got no memory.
var errStarter = errors.New("its starter ended too early")

// executed waits until the command runs, or returns why it can't run.
func (g gate) executed() error {
	result, _ := io.ReadAll(g.in)
	switch len(result) {
	case 0:
		return errStarter
	case 1 + 2:
		return syscall.Errno(binary.LittleEndian.Uint16(result[1:]))
	}
	return nil
}

// spawnStarter starts the starter with the files and the group of attr.
func spawnStarter(attr *syscall.ProcAttr) (int, gate, error) {
	ours, theirs, err := openPipes()
	if err != nil {
		return 0, gate{}, err
	}
	defer theirs.close()

	// The pipes keep their numbers in the starter, so that they replace no file that we inherited for the
	// command.
	in, out := theirs.in.Fd(), theirs.out.Fd()
	attr.Env = append(attr.Env, fmt.Sprintf("%s=%d %d", starter.Variable, in, out))
	pid, err := spawn(guardProgram(), []string{os.Args[0], "(starting)"}, attr, in, out)
	if err != nil {
		ours.close()
		return 0, gate{}, err
	}
	return pid, gate{ours}, nil
}
