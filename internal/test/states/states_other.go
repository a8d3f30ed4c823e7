//go:build !linux

package states

import (
	"fmt"
	"os/exec"
	"strings"
)

// processes runs ps.
func processes() (all []process) {
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "pgid=", "-o", "stat=").Output()
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(out)) {
		var p process
		if _, err := fmt.Sscan(line, &p.pid, &p.group, &p.state); err == nil {
			p.state = p.state[:1]
			all = append(all, p)
		}
	}
	return all
}
