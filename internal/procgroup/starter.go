//go:build unix

package procgroup

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/repolock/repolock/internal/procgroup/starter"
)

// gate is our side of a starter. Out goes the command to execute; in comes the error number,
// or end of file if the command was executed. close ends a starter whose gate was not opened.
type gate struct{ pipes }

// open lets the starter execute the command.
func (g gate) open(path string, args, env []string) error {
	_, err := g.out.Write(message(path, args, env))
	g.out.Close()
	return err
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

// executed returns nil once the command runs, or the reason why it can't. It treats a
// starter that was killed as a command that was killed.
func (g gate) executed() error {
	result, _ := io.ReadAll(g.in)
	if len(result) < 2 {
		return nil
	}
	return syscall.Errno(binary.LittleEndian.Uint16(result))
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
