//go:build !linux

package identity

import "os"

// Elsewhere than on Linux there is no boot id that all processes can read, so
// no process is ever taken for gone, and locks are judged by their age alone.

type stat struct {
	start  uint64
	zombie bool
}

func machineID() string         { return "" }
func bootID() string            { return "" }
func pidNamespace() string      { return "" }
func timeNamespace() string     { return "none" }
func readStat(int) (stat, bool) { return stat{}, false }

// Caller is the process that called this one.
func Caller() int { return os.Getppid() }
