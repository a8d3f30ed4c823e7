//go:build !linux

package dir

import "os"

// flockHolder names the holder of a directory's flock, which only Linux shows.
func flockHolder(*os.File) string { return heldByAnother }
