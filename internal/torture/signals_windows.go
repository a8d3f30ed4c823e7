package torture

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

// On Windows a process can only be killed, so sigcont isn't used.
var (
	signals = map[string]os.Signal{kill: os.Kill}
	sigcont os.Signal
)
