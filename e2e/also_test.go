//go:build linux && programs && !minio

package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/internal/test/redistest"
)

func init() { atEnd = append(atEnd, pgtest.Clean) }

// systems is a site with real servers, and with directories, for the locks of --also. Its
// processes have no repository unless a flag names one.
type systems struct {
	*site
	redis *redistest.Server
	pg    *pgtest.Server
	urls  map[string]string // by kind

	mu sync.Mutex // of the servers' clients
}

// Kinds of locks.
const (
	kindRedis    = "redis"
	kindPostgres = "postgres"
	kindFleet    = "tower-fleet"
	kindBeads    = "beads"
	kindRepo     = "repo"
)

var allKinds = []string{kindRepo, kindRedis, kindPostgres, kindFleet, kindBeads} // in the order of a set

// newSystems returns a site with the systems of these kinds, or of all if there are none.
func newSystems(t *testing.T, kinds ...string) *systems {
	t.Helper()
	s := &systems{site: newSite(t), urls: map[string]string{}}
	s.repo = ""
	if len(kinds) == 0 {
		kinds = allKinds
	}
	if slices.Contains(kinds, kindRedis) {
		s.redis = redistest.New(t)
		s.urls[kindRedis] = "redis://" + s.redis.Addr() + "/0?key=nightly"
	}
	if slices.Contains(kinds, kindPostgres) {
		s.pg = pgtest.New(t)
		s.urls[kindPostgres] = "postgres://postgres@" + s.pg.Address() + "/postgres?key=nightly&sslmode=disable"
	}
	for _, dir := range []string{"fleet", "beads", "beads/.beads", "third"} {
		if err := os.Mkdir(s.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.urls[kindFleet] = "tower-fleet:" + s.path("fleet") + "/nightly"
	s.urls[kindBeads] = "beads:" + s.path("beads")
	s.urls[kindRepo] = "repo:" + s.path("third") + "#nightly"
	return s
}

// also returns the flags for locks of these kinds.
func (s *systems) also(kinds ...string) (flags []string) {
	for _, kind := range kinds {
		flags = append(flags, "--also", s.urls[kind])
	}
	return flags
}

// held reports whether the lock of a kind is stored, without repolock's help.
func (s *systems) held(kind string) bool {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case kindRedis:
		return s.redis != nil && s.redis.CLI("exists", "bext:lock:nightly") == "1"
	case kindPostgres:
		return s.pg != nil && s.pg.PSQL("select count(*) from pg_locks where locktype = 'advisory'") != "0"
	case kindFleet:
		return s.exists("fleet/nightly.lock")
	case kindBeads:
		return s.exists("beads/.beads/.exclusive-lock")
	default:
		return len(s.objects("third")) > 0
	}
}

// heldKinds are the kinds whose locks are stored.
func (s *systems) heldKinds() []string {
	s.t.Helper()
	return slices.DeleteFunc(slices.Clone(allKinds), func(kind string) bool { return !s.held(kind) })
}

// objects lists the files of locks in a repository.
func (s *systems) objects(repo string) (all []string) {
	s.t.Helper()
	err := filepath.WalkDir(s.path(repo), func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, name)
		}
		return nil // a file can go meanwhile
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// nothingLeft checks that no lock is left, nor anything beside one.
func (s *systems) nothingLeft() {
	s.t.Helper()
	if s.redis != nil {
		if keys := s.redis.CLI("keys", "*"); keys != "" {
			s.t.Errorf("redis still has %s", keys)
		}
	}
	if kinds := s.heldKinds(); len(kinds) > 0 {
		s.t.Errorf("still held: %v", kinds)
	}
	for _, dir := range []string{"fleet", "beads/.beads"} {
		entries, err := os.ReadDir(s.path(dir))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != ".lock" && e.Name() != ".flock" { // which serializes repolocks
				s.t.Errorf("%s still has %s", dir, e.Name())
			}
		}
	}
	if left := append(s.objects("repo"), s.objects("third")...); len(left) > 0 {
		s.t.Errorf("still there: %v", left)
	}
}

// contains checks that the output of a process has all texts.
func (p *process) contains(texts ...string) {
	p.s.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.stderr.String(), text) {
			p.s.t.Errorf("%v: %q isn't in its output", p.Args[1:], text)
		}
	}
}

// exits waits for the end of a process, and checks its exit code.
func (p *process) exits(want int) {
	p.s.t.Helper()
	if code := p.code(); code != want {
		p.s.t.Errorf("%v: exit code %d, want %d", p.Args[1:], code, want)
	}
}

// figures returns a table of measured values, one a line.
func figures[V any](of map[string]V) (table string) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		table += fmt.Sprintf("\n  %-34s %v", name, of[name])
	}
	return table
}
