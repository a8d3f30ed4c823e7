//go:build unix

package child

import (
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/repolock/repolock/internal/child/starter"
)

// gate is our side of a starter.
type gate struct {
	opens  *os.File // written to by us: execute, in this environment
	result *os.File // read by us: why it couldn't, or an end
}

// close lets a starter end whose gate wasn't opened.
func (g gate) close() {
	g.opens.Close()
	g.result.Close()
}

// open lets the starter execute the command.
func (g gate) open(path string, args, env []string) error {
	_, err := g.opens.Write(starter.Encode(path, args, env))
	g.opens.Close()
	return err
}

// executed waits until the command runs, and returns why if it can't. A starter
// that was killed counts as a command that was.
func (g gate) executed() error {
	result, _ := io.ReadAll(g.result)
	if len(result) == 0 {
		return nil
	}
	return starter.Errno(result)
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

	// They keep their numbers in the starter, so that no file that we inherited for
	// the command gives way to them.
	theirs := []uintptr{theirGate.Fd(), theirResult.Fd()}
	attr.Env = append(attr.Env, fmt.Sprintf("%s=%d %d", starter.Variable, theirs[0], theirs[1]))
	pid, err := spawn(guardProgram(), []string{os.Args[0], "(starting)"}, attr, theirs...)
	if err != nil {
		g.close()
		return 0, gate{}, err
	}
	return pid, g, nil
}
