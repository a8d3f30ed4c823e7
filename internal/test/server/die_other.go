//go:build !linux

package server

import "os/exec"

func dieWithUs(*exec.Cmd) {}
