//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package dir

import "os"

func flockHolder(*os.File) string { return heldByAnother }
