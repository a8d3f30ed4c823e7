package session

import (
	"encoding/json"
	"os"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/replock"
)

// Holding describes a keeper's lock to a script. Fields are only ever added.
type Holding struct {
	Token string `json:"token"`
	ID    string `json:"id"`
	// IDs are the ids of all locks, if there are several. ID is the first of them.
	IDs       []string `json:"ids,omitempty"`
	Mode      string   `json:"mode"`
	Operation string   `json:"operation"`
	Key       string   `json:"key"`
	Fence     uint64   `json:"fence,omitempty"`
	KeeperPID int      `json:"keeper_pid"`
	ForPID    int      `json:"for_pid,omitempty"`
	// HeldUntil is when the lease ends unless the keeper refreshes the lock.
	HeldUntil   time.Time `json:"held_until"`
	LeftSeconds float64   `json:"left_seconds"`
	// Deadline is HeldUntil on the keeper's clock since boot, which can't be set.
	Deadline time.Duration `json:"deadline_boot_ns"`
	// Unseen is why check couldn't read the repository, or "". The lock is held in both cases.
	Unseen string `json:"unseen,omitempty"`
}

// Left returns LeftSeconds: the time that the lease had left when the keeper answered.
func (h Holding) Left() time.Duration { return time.Duration(h.LeftSeconds * float64(time.Second)) }

// Answer is the keeper's answer to check, renew and release. Fields are only ever added.
type Answer struct {
	Holding
	// TimeNamespace identifies the clock that shows Deadline.
	TimeNamespace string `json:"time_namespace,omitempty"`
	// Failure is from Keeper.Describe. It is a pointer so that null means none.
	Failure *json.RawMessage `json:"failure,omitempty"`
}

// Over reports whether the lease was over when this process read the answer. The system can have stopped this
// process after the keeper answered. asked and read are on our clock since boot. A keeper in another or an unknown
// time namespace has another clock; then LeftSeconds counts from asked.
func (a Answer) Over(asked, read time.Duration, namespace string) bool {
	if a.TimeNamespace == "" || a.TimeNamespace != namespace {
		return read-asked >= a.Left()
	}
	return read >= a.Deadline
}

// News is a report of a keeper to acquire: an event, and at last the lock or the failure.
type News struct {
	Event    *replock.Event
	EventErr string // Event.Err, which isn't encoded
	Held     *Holding
	Failure  json.RawMessage
}

func (k *keeper) holding() Holding {
	about, left := k.lock.About(), max(k.left(), 0)
	h := Holding{
		Token: k.Token, ID: about.ID, Mode: k.mode().String(), Operation: about.Operation, Key: about.Key, Fence: about.Fence,
		KeeperPID: os.Getpid(), HeldUntil: clock.System{}.Now().Add(left).UTC(), LeftSeconds: events.Seconds(left), Deadline: k.lock.Deadline(),
	}
	if all := k.lock.IDs(); len(all) > 1 {
		h.IDs = all
	}
	if k.Owner != nil {
		h.ForPID = k.Owner.PID
	}
	return h
}

func (k *keeper) answer(err error) Answer {
	a := Answer{Holding: k.holding(), TimeNamespace: identity.Self().TimeNamespace}
	if err != nil {
		failure := k.Describe(err)
		a.Failure = &failure
	}
	return a
}
