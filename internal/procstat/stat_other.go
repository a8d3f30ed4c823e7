//go:build !linux

package procstat

// Read knows no process.
func Read(string) (Stat, bool) { return Stat{}, false }
