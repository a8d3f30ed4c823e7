//go:build !linux

package dir

import "os"

// late is empty, because this system doesn't show the type of a mount.
var late map[string]string

func mountType(*os.File) string { return "" }

func flockHolder(*os.File) string { return heldByAnother }
