//go:build linux && programs && !minio

package e2e

import (
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// marks is a command under several locks. It marks each lock by a file that only one process
// can create, and counts the moments at which a mark is there.
const marks = `
set -C
for k in $KINDS; do true >mark-$k || echo "two hold $k" >>two; done
sleep 0.02
echo "$KINDS" >>rounds
for k in $KINDS; do rm mark-$k || echo "two held $k" >>two; done`

// TestAlsoOrder: six contenders want three locks or more at once, and name them in random
// orders. They never wait for each other for ever, never two hold a lock, and nothing is left.
func TestAlsoOrder(t *testing.T) {
	s := newSystems(t)
	const contenders, each = 6, 34
	var waits atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range contenders {
		all.Go(func() {
			for range each {
				p := s.contend(s.someKinds())
				if code := p.code(); code != 0 {
					t.Errorf("exit code %d", code)
					return
				}
				p.quiet = true // there are hundreds
				waits.Add(int64(strings.Count(p.stderr.String(), "waiting")))
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	rounds, two := s.lines("rounds"), s.lines("two")
	if len(two) > 0 {
		t.Errorf("%d times two held a lock: %v", len(two), two[0])
	}
	if len(rounds) != contenders*each {
		t.Errorf("%d rounds, want %d", len(rounds), contenders*each)
	}
	s.nothingLeft()
	with := map[string]int{}
	for _, r := range rounds {
		for kind := range strings.FieldsSeq(r) {
			with[kind]++
		}
	}
	t.Logf("%d rounds by %d contenders in %v, %v a round; %d times one waited; two: %d; rounds with each kind:%s",
		len(rounds), contenders, took.Round(time.Second), (took / time.Duration(max(len(rounds), 1))).Round(time.Millisecond),
		waits.Load(), len(two), figures(with))
}

// someKinds are three kinds of locks or more, in random order. Any two sets have a lock in
// common.
func (s *systems) someKinds() []string {
	third := kindBeads
	if rand.N(6) == 0 {
		third = kindFleet // which takes a second, to watch other programs
	}
	kinds := []string{kindRedis, kindPostgres, third}
	if rand.N(3) == 0 {
		kinds = append(kinds, kindRepo)
	}
	if rand.N(3) == 0 {
		kinds = append(kinds, "main")
	}
	rand.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	return kinds
}

// contend starts a repolock that waits for locks, and marks them. The kind main is the
// repository's own lock.
func (s *systems) contend(kinds []string) *process {
	args := []string{"run", "--wait", "10m", "--ttl", lasting.String()}
	for _, kind := range kinds {
		if kind == "main" {
			args = append(args, "--exclusive", "--repo", s.path("repo"))
		} else {
			args = append(args, s.also(kind)...)
		}
	}
	return s.start(append(args, "--", "env", "KINDS="+strings.Join(kinds, " "), "sh", "-c", marks)...)
}

// lines returns the lines of a file, which needn't exist.
func (s *site) lines(name string) []string {
	raw, err := os.ReadFile(s.path(name))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}
