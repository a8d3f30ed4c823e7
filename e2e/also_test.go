//go:build linux && programs && !minio

package e2e

import (
	"fmt"
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

func newSystems(t *testing.T, redisArgs ...string) *systems {
	t.Helper()
	s := &systems{site: newSite(t)}
	s.repo = ""
	s.redis, s.pg = redistest.New(t, redisArgs...), pgtest.New(t)
	for _, dir := range []string{"fleet", "beads", "beads/.beads", "other"} {
		if err := os.Mkdir(s.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.urls = map[string]string{
		kindRedis:    "redis://" + s.redis.Addr() + "/0?key=nightly",
		kindPostgres: "postgres://postgres@" + s.pg.Address() + "/postgres?key=nightly&sslmode=disable",
		kindFleet:    "tower-fleet:" + s.path("fleet") + "/nightly",
		kindBeads:    "beads:" + s.path("beads"),
		kindRepo:     "repo:" + s.path("other") + "#third",
	}
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
		return s.redis.CLI("exists", "bext:lock:nightly") == "1"
	case kindPostgres:
		return s.pg.PSQL("select count(*) from pg_locks where locktype = 'advisory'") != "0"
	case kindFleet:
		return s.exists("fleet/nightly.lock")
	case kindBeads:
		return s.exists("beads/.beads/.exclusive-lock")
	default:
		return len(s.objects("other")) > 0
	}
}

// heldKinds are the kinds whose locks are stored.
func (s *systems) heldKinds() []string {
	s.t.Helper()
	return slices.DeleteFunc(slices.Clone(allKinds), func(kind string) bool { return !s.held(kind) })
}

// objects lists the files of locks in a repository.
func (s *systems) objects(repo string) (all []string) {
	for _, pattern := range []string{"index/lock.*", "index/lock.*/*", "index/*/lock.*", "index/*/lock.*/*"} {
		found, _ := filepath.Glob(filepath.Join(s.path(repo), pattern))
		for _, name := range found {
			if info, err := os.Stat(name); err == nil && !info.IsDir() {
				all = append(all, name)
			}
		}
	}
	return all
}

// nothingLeft checks that no lock is left, nor anything beside one.
func (s *systems) nothingLeft() {
	s.t.Helper()
	if keys := s.redis.CLI("keys", "*"); keys != "" {
		s.t.Errorf("redis still has %s", keys)
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
	if left := append(s.objects("repo"), s.objects("other")...); len(left) > 0 {
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
