package sim

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
)

// holding is a lock that was granted.
type holding struct {
	p     *process
	step  step
	lock  Held
	first *holding // the lock that this one was resumed from, and so on
	asked time.Time
	began time.Time
	ended bool // was released
	// stopped: the guard has stopped the protected command.
	stopped bool
	// paused: the hypervisor paused its machine while it was taken, so that another
	// client can have passed its flag by then.
	paused bool
	// passers were let in while its machine was paused by the hypervisor.
	passers map[*holding]bool
	// straddled: a put of it can have put back objects that its passers have deleted.
	straddled bool
	// expired is set once its deadline was seen to have passed.
	expired bool
}

func (h *holding) String() string {
	return fmt.Sprintf("%s's %v lock [%s]", h.p.client.name, h.step.mode, h.step.name)
}

// held reports whether its holder, without a look at the clock, takes it for held.
func (h *holding) held() bool {
	return !h.ended && !h.p.gone() && h.lock.Context().Err() == nil
}

// live reports whether its holder can continue the protected work.
func (h *holding) live() bool {
	return h.held() && !h.stopped && h.p.client.clock.Elapsed() < h.lock.Deadline()
}

// conflicts reports whether two locks exclude each other.
func (h *holding) conflicts(g *holding) bool { return h.excludes(g.step.mode, g.step.lock) }

func (h *holding) excludes(mode replock.Mode, lock string) bool {
	return h.step.lock == lock && (h.step.mode == replock.Exclusive || mode == replock.Exclusive)
}

// foreign reports whether its holder follows the original protocol.
func (h *holding) foreign() bool { return h.p.client.plan.foreign }

// origin returns the lock that this one was first resumed from.
func (h *holding) origin() *holding {
	for h.first != nil {
		h = h.first
	}
	return h
}

// objects of a lock, as the maps below name them.
func (h *holding) objects() [2]string {
	return [2]string{h.lock.Key(), prefix(h.step.lock) + exclusive + "#" + h.lock.ID()}
}

const (
	exclusive    = "lock.exclusive"
	exclusiveKey = replock.DefaultPrefix + exclusive
)

// prefix of a lock's keys, by its name.
func prefix(lock string) string {
	if lock == "" {
		return replock.DefaultPrefix
	}
	return replock.DefaultPrefix + "locks/" + lock + "/"
}

func isExclusive(key string) bool { return strings.HasSuffix(key, "/"+exclusive) }

// objectName returns a key. For lock.exclusive, which many clients write, it adds the id of
// the lock.
func objectName(key string, body []byte) string {
	if !isExclusive(key) {
		return key
	}
	var b struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(body, &b)
	return key + "#" + b.ID
}

// keyOf is the key of an object.
func keyOf(name string) string {
	key, _, _ := strings.Cut(name, "#")
	return key
}
