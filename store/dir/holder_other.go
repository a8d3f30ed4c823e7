//go:build !linux

package dir

import "os"

// flockHolder says who holds the flock of a directory, which only Linux tells.
func flockHolder(*os.File) string { return heldByAnother }
