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

// gate is our side of a starter.
type gate struct {
	opens  *os.File // we write: execute this command
	result *os.File // we read: the error number, or end of file if it was executed
}

// close ends a starter whose gate was not opened.
func (g gate) close() {
	g.opens.Close()
	g.result.Close()
}

// open lets the starter execute the command.
func (g gate) open(path string, args, env []string) error {
	_, err := g.opens.Write(message(path, args, env))
	g.opens.Close()
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
	result, _ := io.ReadAll(g.result)
	if len(result) < 2 {
		return nil
	}
	return syscall.Errno(binary.LittleEndian.Uint16(result))
}

// spawnStarter forks the starter, whose files and group are those of attr.
func spawnStarter(attr *syscall.ProcAttr) (int, gate, error) {
	theirGate, opens, err := os.Pipe()
	if err != nil {
		return 0, gate{}, err
	}
	defer theirGate.Close()
	result, theirResult, err := os.Pipe()
	if err != nil {
		opens.Close()
		return 0, gate{}, err
	}
	defer theirResult.Close()
	g := gate{opens, result}

	// Keep their numbers in the starter, so that they replace no file that we inherited
	// for the command.
	theirs := []uintptr{theirGate.Fd(), theirResult.Fd()}
	attr.Env = append(attr.Env, fmt.Sprintf("%s=%d %d", starter.Variable, theirs[0], theirs[1]))
	pid, err := spawn(guardProgram(), []string{os.Args[0], "(starting)"}, attr, theirs...)
	if err != nil {
		g.close()
		return 0, gate{}, err
	}
	return pid, g, nil
}
