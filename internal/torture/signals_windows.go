package torture

import (
	"os"
	"os/exec"
)

func apart(*exec.Cmd) {}

// A process can only be killed: there is nothing to be continued.
var (
	signals           = map[harm]os.Signal{kill: os.Kill}
	sigcont os.Signal = os.Interrupt
)
