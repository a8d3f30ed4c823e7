//go:build !race

package underrace

// On reports whether the race detector is on.
const On = false
