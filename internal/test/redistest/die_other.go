//go:build !linux

package redistest

import "os/exec"

func dieWithUs(*exec.Cmd) {}
