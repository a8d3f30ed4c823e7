// Package lockingtest checks that a backend keeps the contract of locking.Backend.
//
//	func TestConformance(t *testing.T) {
//		dir := t.TempDir()
//		lockingtest.Run(t, lockingtest.Config{
//			New: func(t *testing.T) locking.Backend { return newClient(t, dir) },
//		})
//	}
//
// Each rule is a subtest, and none is skipped: if a backend declares that its locks don't
// expire, the first rule about a ttl checks that they don't. The rules of expiry and of an optional
// interface ask nothing of a backend that doesn't have it.
//
// The suite waits out some four times Config.TTL and runs 2000 contended rounds. A backend that
// reads an injected clock waits for nothing: see Config.Bubble and Config.Advance.
package lockingtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/locking"
)

// Config has the backend under test.
type Config struct {
	// New returns a client of its own, as another process would have it. All clients of a
	// Run use the same storage, on which no lock is held when Run begins.
	New func(t *testing.T) locking.Backend
	// Other returns a client that is in another process: see Start. If it is set, every second
	// client is one, so that the suite runs between processes. If it is nil, New's clients do.
	Other func(t *testing.T) locking.Backend
	// Steal returns a client that takes a lock whose ttl is over. If it is set, New's clients
	// must not take one. If it is nil, every client takes one.
	Steal func(t *testing.T) locking.Backend
	// Lose takes the lock of a key away from outside, without the backend: as a person, another
	// program or the server does, it removes the file, deletes the key, or ends the session. Then
	// the lock is free. A backend that isn't both a Breaker and an Inspector needs it. Of one that
	// is, the suite also breaks locks.
	Lose func(t *testing.T, key string)
	// Notice is how soon after such a loss the channel of Watch is closed, at the latest. If it is
	// 0, the backend is no Watcher, or notices nothing before Renew. Only in a bubble does the
	// suite measure it.
	Notice time.Duration
	// Keys are valid keys; "a" and "b" if there are none. With one key, the suite
	// can't check that keys are independent.
	Keys []string
	// BadKeys are keys that the backend must refuse.
	BadKeys []string
	// Expires declares that a lock ends when its ttl is over. TTL is the ttl that the
	// suite waits out then, as short as the backend can measure; one second if it is 0.
	Expires bool
	TTL     time.Duration
	// Advance moves the backend's clock. If it is nil, the suite waits.
	Advance func(d time.Duration)
	// Bubble runs each subtest in a bubble of testing/synctest, and calls New and Steal in it.
	// There the waits take no time. The backend must read the bubble's time alone, through the
	// clock that its test injects.
	Bubble bool
	// Rounds is the number of contended rounds of each race, if it is 0 then 1000, or 100 with
	// -short. Clients is the number of clients that contend, 6 if it is 0.
	Rounds, Clients int
	// Limit is how long the suite waits for what must come, ten minutes if it is 0: only a hang
	// reaches it.
	Limit time.Duration
}

// suite is the contract, rule by rule.
var suite = []struct {
	rule string
	test func(*fixture)
}{
	{"contention is no error", contentionIsNoError},
	{"keys are independent", keysAreIndependent},
	{"bad keys are ErrKey", badKeys},
	{"a ttl is positive", ttlIsPositive},
	{"a handle has its key and ttl and a token of its own", handles},

	{"release frees at once", releaseFrees},
	{"a zero handle is ErrLost", zeroHandle},
	{"a lock that is lost stays lost", lostStaysLost},

	{"an ended context acquires nothing", endedContext},
	{"an ended context loses no lock", endedContextRenews},
	{"the end of the acquire's context loses no lock", endedContextOfTryLock},
	{"a release with an ended context says what is so", endedContextReleases},
	{"a context that ends meanwhile leaves nothing", contextEndsMeanwhile},

	{"a lock lasts for its ttl", lasts},
	{"expiry frees", expiryFrees},
	{"renew extends", renewExtends},
	{"an expired handle is ErrLost", expiredHandle},
	{"cleanup frees no held lock", cleanupKeeps},

	{"inspect shows a held lock alone", inspectShows},
	{"each holder has a revision of its own", revisionsDiffer},
	{"break removes only what was seen", breakRemovesSeen},
	{"resume restores no lock that another had", resumeRestores},
	{"examine changes nothing", examineChangesNothing},

	{"a round has one winner", oneWinner},
	{"never two holders", neverTwo},
}

// long is the ttl of locks that must not expire in a test.
const long = 10 * time.Minute

// Run runs all subtests, one after the other.
func Run(t *testing.T, c Config) {
	t.Helper()
	if len(c.Keys) == 0 {
		c.Keys = []string{"a", "b"}
	}
	if c.TTL == 0 {
		c.TTL = time.Second
	}
	if c.Rounds == 0 {
		c.Rounds = 1000
		if testing.Short() {
			c.Rounds = 100
		}
	}
	if c.Limit == 0 {
		c.Limit = 10 * time.Minute
	}
	if c.Clients == 0 {
		c.Clients = 6
	}
	for _, s := range suite {
		t.Run(s.rule, func(t *testing.T) {
			if c.Bubble {
				synctest.Test(t, func(t *testing.T) { s.test(newFixture(t, c)) })
			} else {
				s.test(newFixture(t, c))
			}
		})
	}
}
