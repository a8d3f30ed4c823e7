package replock

import (
	"fmt"
	"sync"
)

// Beside names the other programs that can hold a repository's own lock: docs/evidence/protocol.md, Beside clients of
// the original protocol.
type Beside int

const (
	BesideUnknown   Beside = iota // the Locker finds out
	BesideNobody                  // only clients of this protocol
	BesideCloudstic               // also Cloudstic's, which follow the original protocol
)

var besides = [...]string{"unknown", "nobody", "cloudstic"}

// String returns "unknown", "nobody" or "cloudstic".
func (b Beside) String() string {
	if b < 0 || int(b) >= len(besides) {
		return fmt.Sprintf("Beside(%d)", int(b))
	}
	return besides[b]
}

// ParseBeside returns the Beside with this String, and whether there is one.
func ParseBeside(s string) (Beside, bool) {
	for b, name := range besides {
		if name == s {
			return Beside(b), true
		}
	}
	return BesideUnknown, false
}

// neighbours has the facts that a Locker knows about other programs in its repository.
type neighbours struct {
	mu     sync.Mutex
	known  Beside
	asking chan struct{} // closed at the end of the present inquiry; nil without one
}

// state returns the known Beside, and a channel that is closed when the present inquiry ends.
func (n *neighbours) state() (Beside, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known, n.asking
}

// met records that a lock of an original client was seen.
func (n *neighbours) met() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = BesideCloudstic
}
