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

// gate is our side of a starter. Out goes the command to execute; in comes starter.Ready, and then the
// error number, or end of file if the command was executed. close ends a starter whose gate was not opened.
type gate struct{ pipes }

// open lets the starter execute the command. A starter that has ended, or gets half of the message,
// executes nothing.
func (g gate) open(path string, args, env []string) {
	_, _ = g.out.Write(message(path, args, env))
	g.out.Close()
}

// message is what starter.Decode parses.
func message(path string, args, env []string) []byte {
	all := slices.Concat([]string{path}, args, env)
	text := fmt.Appendf(nil, "%d %d ", len(all), len(args))
	for _, s := range all {
		text = fmt.Appendf(text, "%d %s", len(s), s)
	}
	return text
}

// errStarter is returned when the starter ended before it could execute the command, for example because
// there was no memory for Go's runtime.
var errStarter = errors.New("its starter ended too early")

// executed returns nil once the command runs, or the reason why it can't.
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

// spawnStarter forks the starter, whose files and group are those of attr.
func spawnStarter(attr *syscall.ProcAttr) (int, gate, error) {
	ours, theirs, err := openPipes()
	if err != nil {
		return 0, gate{}, err
	}
	defer theirs.close()

	// Keep their numbers in the starter, so that they replace no file that we inherited
	// for the command.
	in, out := theirs.in.Fd(), theirs.out.Fd()
	attr.Env = append(attr.Env, fmt.Sprintf("%s=%d %d", starter.Variable, in, out))
	pid, err := spawn(guardProgram(), []string{os.Args[0], "(starting)"}, attr, in, out)
	if err != nil {
		ours.close()
		return 0, gate{}, err
	}
	return pid, gate{ours}, nil
}
