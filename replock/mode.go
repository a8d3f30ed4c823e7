package replock

import "fmt"

// Mode is how a lock shares the repository.
type Mode int

const (
	// Shared locks can be held side by side: backup, restore.
	Shared Mode = iota + 1
	// An Exclusive lock is held alone: prune.
	Exclusive
)

// String returns "shared" or "exclusive".
func (m Mode) String() string {
	words := [...]string{Shared: "shared", Exclusive: "exclusive"}
	if m < Shared || m > Exclusive {
		return fmt.Sprintf("Mode(%d)", int(m))
	}
	return words[m]
}

// MarshalText returns String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }
