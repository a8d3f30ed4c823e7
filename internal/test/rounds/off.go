//go:build !race

package rounds

// underRace reports whether the race detector is on.
const underRace = false
