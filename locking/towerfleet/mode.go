package towerfleet

import "fmt"

// Mode is the mode of an intent (section 9). The zero Mode is Mutate.
type Mode string

// The modes of the specification.
const (
	Observe   Mode = "observe"
	Mutate    Mode = "mutate"
	Reconcile Mode = "reconcile"
)

// Lock reports whether an intent of this mode takes its lock; name is the intent's
// controls.lock, which can be empty. The warning is for the operator if an intent runs without
// a lock although it needs one. An observing intent never locks, and no lock blocks it.
func (m Mode) Lock(name string) (lock bool, warning string, err error) {
	switch m {
	case Observe:
		return false, "", nil
	case "", Mutate, Reconcile:
	default:
		return false, "", fmt.Errorf("intent mode %q: use observe, mutate or reconcile", string(m))
	}
	if name != "" {
		return true, "", CheckName(name)
	}
	if m == Reconcile {
		return false, "Reconcile intent without lock - conflicting reconciliation possible", nil
	}
	return false, "Mutate intent without lock - concurrent execution possible", nil
}
