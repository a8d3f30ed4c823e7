// Package lockingtest checks that a backend keeps the contract of locking.Backend.
//
//	func TestConformance(t *testing.T) {
//		dir := t.TempDir()
//		lockingtest.Run(t, lockingtest.Config{
//			New: func(t *testing.T) locking.Backend { return newClient(t, dir) },
//		})
//	}
//
// Each rule is a subtest. If Config declares that locks don't expire, "a lock lasts for its ttl"
// checks that they don't, and the rules about expiry pass at once. So do the rules about an optional
// interface that the backend doesn't implement.
//
// The suite waits for about four times Config.TTL and runs 2000 contended rounds. It doesn't wait if
// the backend reads an injected clock: see Config.Bubble and Config.Advance.
package lockingtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/locking"
)

// Config describes the backend under test.
type Config struct {
	// New returns a new client, as another process would open it. All clients of a Run share one
	// storage, which has no locks when Run begins.
	New func(t *testing.T) locking.Backend
	// Other returns a client in another process: see Start. If it is set, every second client is
	// such a client. If it is nil, all clients come from New.
	Other func(t *testing.T) locking.Backend
	// Steal returns a client that takes locks whose ttl is over. If Steal is set, the clients of New must not take
	// them. If it is nil, every client must.
	Steal func(t *testing.T) locking.Backend
	// Lose frees the lock of a key without its holder, as a person, another program or the server would: it removes the
	// file, deletes the key, or ends the session. It is required unless the backend is a Breaker and an Inspector. For
	// such a backend the suite also calls Break.
	Lose func(t *testing.T, key string)
	// Notice is the longest time from such a loss until the channel of Watch is closed. The suite measures it only in a
	// bubble. It is 0 if the backend is no Watcher, or notices no loss before Renew.
	Notice time.Duration
	// Keys are valid keys. They default to "a" and "b". With one key alone, the suite can't check
	// that keys are independent.
	Keys []string
	// BadKeys are keys that the backend must refuse.
	BadKeys []string
	// Expires declares that a lock ends when its ttl is over. TTL is the ttl of the locks that the
	// suite lets expire: the shortest that the backend can measure. It defaults to one second.
	Expires bool
	TTL     time.Duration
	// Advance moves the backend's clock. If it is nil, the suite waits.
	Advance func(d time.Duration)
	// Bubble runs each subtest in a bubble of testing/synctest, and calls New and Steal in it, so
	// that waits take no time. The backend must read no time except the bubble's.
	Bubble bool
	// Rounds is the number of contended rounds of each race. It defaults to 1000, and to 100 with
	// -short. Clients is the number of clients that contend. It defaults to 6.
	Rounds, Clients int
	// Limit is how long the suite waits for a call before it reports that the call hangs. It defaults to ten minutes.
	Limit time.Duration
}

// suite is the contract.
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

// long is the ttl of locks that must not expire during a test.
const long = 10 * time.Minute

// Run checks each rule of the contract in a subtest.
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
