package sim

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
)

var (
	seedFlag    = flag.Uint64("seed", 0, "run this history alone, and print it")
	withoutFlag = flag.String("without", "", "what to leave out of it: see Config.Without")
	seedsFlag   = flag.Uint64("seeds", 400, "how many histories to run; 0: until stopped")
	fromFlag    = flag.Uint64("from", 1, "the first one; 0: a random one")
	briefFlag   = flag.Bool("brief", false, "say no more of a violation than its seed and kind")
	sceneFlag   = flag.String("scene", "", "what each history is about, in place of what its seed says")
	crowdsFlag  = flag.Uint64("crowds", 0, "how many histories there are for each one that is about a crowd; 0: none")
	idleFlag    = flag.Duration("idle", 0, "the limit of the time for which the way of the first waiter is free, beside three round trips; 0: none")
	everyFlag   = flag.Duration("every", 0, "how often to say how far it is")
)

// TestMain collects garbage less often than usual, because a history leaves little else.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// TestSeeds runs histories until one of them violates something, which is then
// shrunk and printed; or the one history of -seed.
func TestSeeds(t *testing.T) {
	if *seedFlag != 0 {
		config := Config{Seed: *seedFlag, Scene: scene(), Idle: *idleFlag, Trace: true}
		if *withoutFlag != "" {
			config.Without = strings.Split(*withoutFlag, ",")
		}
		r := Run(t, config)
		t.Logf("seed %d\n%s", config.Seed, r.Timeline)
		assert.That(t, r.Violation == nil, "%v", r.Violation)
		return
	}
	var (
		next    atomic.Uint64
		mu      sync.Mutex
		total   Totals
		failed  []Config
		found   = map[uint64]*Violation{}
		said    = time.Now()
		workers = runtime.GOMAXPROCS(0)
	)
	from, last := *fromFlag, uint64(math.MaxUint64)
	if from == 0 {
		from = 1 + rand.Uint64N(1<<48)
	}
	if seeds := rounds.Fewer(*seedsFlag, *seedsFlag/4); seeds > 0 {
		last = from + seeds - 1
	}
	next.Store(from)
	say := func() { fmt.Printf("from seed %d: %v\n", from, total.String()) }
	over := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); *everyFlag > 0 && now.Sub(said) >= *everyFlag {
			said = now
			say()
		}
		return len(failed) > 0
	}
	t.Run("histories", func(t *testing.T) {
		for n := range workers {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				for !over() {
					config := Config{Seed: next.Add(1) - 1, Scene: scene(), Idle: *idleFlag}
					if *crowdsFlag > 0 && config.Seed%*crowdsFlag == 0 {
						config.Scene = Crowd
					}
					if config.Seed > last {
						return
					}
					r := Run(t, config)
					mu.Lock()
					total.add(r)
					if r.Violation != nil {
						failed, found[config.Seed] = append(failed, config), r.Violation
					}
					mu.Unlock()
				}
			})
		}
	})
	slices.SortFunc(failed, func(a, b Config) int { return cmp.Compare(a.Seed, b.Seed) }) // the first is the same each time
	for _, config := range failed {
		if *briefFlag {
			t.Errorf("found: seed %d: %s", config.Seed, found[config.Seed].Kind)
			continue
		}
		seen := *found[config.Seed]
		config, r := Shrink(t, config)
		assert.That(t, r.Violation != nil, "seed %d: %v, and not when it was run again", config.Seed, seen)
		t.Errorf("seed %d\n%s\n%v\nagain: %s", config.Seed, r.Timeline, r.Violation, again(config))
	}
	say()
}

// again is the command that repeats a history.
func again(config Config) string {
	s := fmt.Sprintf("go test ./internal/test/sim -run '^TestSeeds$' -v -seed=%d", config.Seed)
	if config.Scene != None {
		s += " -scene=" + config.Scene.String()
	}
	if config.Idle > 0 {
		s += " -idle=" + config.Idle.String()
	}
	if len(config.Without) > 0 {
		s += " -without=" + strings.Join(config.Without, ",")
	}
	return s
}

// scene returns the scene of -scene.
func scene() Kind { return Kind(max(0, slices.Index(kindNames[:], *sceneFlag))) }

// TestSame: a seed gives the same history each time, down to the last request.
func TestSame(t *testing.T) {
	for seed := uint64(1); seed <= rounds.Fewer[uint64](200, 10); seed++ {
		same(t, Config{Seed: seed, Trace: true})
	}
	for _, s := range scenes {
		for seed := uint64(1); seed <= rounds.Fewer[uint64](10, 1); seed++ {
			same(t, Config{Seed: seed, Scene: s.kind, Trace: true})
		}
	}
}

func same(t *testing.T, config Config) {
	a, b := lines(Run(t, config)), lines(Run(t, config))
	if slices.Equal(a, b) {
		return
	}
	for i := range min(len(a), len(b)) {
		assert.Need(t, a[i] == b[i], "seed %d, scene %v, line %d:\n%s\n%s", config.Seed, config.Scene, i, a[i], b[i])
	}
	t.Fatalf("seed %d, scene %v: %d lines and %d", config.Seed, config.Scene, len(a), len(b))
}

// lines returns the lines of a timeline, sorted: actions of one client at one time can happen in any order,
// without consequences.
func lines(r Result) []string {
	l := strings.Split(r.Timeline, "\n")
	slices.Sort(l)
	return l
}

// TestHolesOfOtherProtocolsAreFound: the simulator finds each known hole of other protocols in histories with
// only the fault that opens it.
func TestHolesOfOtherProtocolsAreFound(t *testing.T) {
	const within = 1000
	for _, hole := range []struct {
		name  string
		only  []Kind
		apart bool
		kind  string
		text  string // of the violation
	}{
		{"original: exclusive and shared both granted", []Kind{}, false, "exclusion", "shared"},
		{"original: two exclusives both granted", []Kind{}, false, "exclusion", "exclusive lock [c1.1] is live beside c2's exclusive"},
		{"original: read errors count as free", []Kind{Busy}, true, "exclusion", ""},
		{"original: the reader's clock judges the writer's", []Kind{Skew}, true, "exclusion", ""},
		{"original: three failures take longer than the lease", []Kind{Outage}, true, "exclusion", ""},
		{"original: a stopped process carries on", []Kind{Pause}, true, "exclusion", ""},
		{"original: a refresh brings back a broken lock", []Kind{Break}, true, "unbroken", ""},
	} {
		t.Run(hole.name, func(t *testing.T) {
			other := map[string]int{}
			for seed := uint64(1); seed <= within; seed++ {
				config := Config{Seed: seed, Protocol: original{}, Only: hole.only, Apart: hole.apart}
				r := Run(t, config)
				if v := r.Violation; v != nil && v.Kind == hole.kind && strings.Contains(v.Text, hole.text) {
					t.Logf("seed %d: %v", seed, *v)
					return
				} else if v != nil {
					other[v.Kind]++
				}
			}
			t.Errorf("not found in %d histories; found %v", within, other)
		})
	}
}

// TestReaped: histories with deletions of many objects violate nothing. No other histories have
// them.
func TestReaped(t *testing.T) {
	for seed := range uint64(rounds.Fewer(200, 40)) {
		config := Config{Seed: 1 + seed, Scene: Reaped}
		r := Run(t, config)
		assert.That(t, r.Violation == nil, "seed %d: %v: again: %s", config.Seed, r.Violation, again(config))
	}
}
