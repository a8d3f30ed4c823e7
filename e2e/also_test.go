//go:build linux && programs

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/test/assert"
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
	s.mkdir("fleet", "beads/.beads", "third")
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
		return len(s.files("third")) > 0
	}
}

// heldKinds returns the kinds whose locks are stored.
func (s *systems) heldKinds() []string {
	s.t.Helper()
	return slices.DeleteFunc(slices.Clone(allKinds), func(kind string) bool { return !s.held(kind) })
}

// nothingLeft checks that no lock is left, nor anything beside one.
func (s *systems) nothingLeft() {
	s.t.Helper()
	if s.redis != nil {
		assert.Equal(s.t, s.redis.CLI("keys", "*"), "", "keys of redis")
	}
	assert.Equal(s.t, s.heldKinds(), nil, "still held")
	for _, dir := range []string{"fleet", "beads/.beads"} {
		entries, err := os.ReadDir(s.path(dir))
		assert.OK(s.t, err)
		for _, e := range entries {
			if e.Name() != ".lock" && e.Name() != ".flock" { // which serializes repolocks
				s.t.Errorf("%s still has %s", dir, e.Name())
			}
		}
	}
	assert.Equal(s.t, append(s.files("repo"), s.files("third")...), nil, "still there")
}

// ids are the ids of the entries of an event, in their order.
func ids(all []audit.Record, event string) (found []string) {
	for _, e := range all {
		if e.Event == event {
			found = append(found, e.RequestID)
		}
	}
	return found
}

// releasedInReverse checks that n locks were acquired, and released in reverse order, without the lock at the
// index lost; -1 is none.
func (s *systems) releasedInReverse(n, lost int) {
	s.t.Helper()
	all := s.records("audit")
	want := ids(all, "lock_acquired")
	if len(want) != n {
		s.t.Errorf("%d locks were acquired, want %d", len(want), n)
		return
	}
	if lost >= 0 {
		want = slices.Delete(want, lost, lost+1)
	}
	slices.Reverse(want)
	assert.Equal(s.t, ids(all, "lock_released"), want, "released")
}

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
	var all sync.WaitGroup
	for range contenders {
		all.Go(func() {
			for range each {
				p := s.contend(s.someKinds())
				p.exits(0)
				p.quiet = true // there are hundreds
			}
		})
	}
	all.Wait()
	assert.Equal(t, s.lines("two"), nil, "two held a lock")
	assert.Equal(t, len(s.lines("rounds")), contenders*each, "rounds")
	s.nothingLeft()
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

// The secrets that must appear nowhere.
const (
	redisSecret    = "rEdIs-4711-sEcReT"
	postgresSecret = "pOsTgReS-4712-sEcReT"
)

var secrets = []string{redisSecret, postgresSecret}

// TestAlsoSecrets: redis and PostgreSQL want passwords. repolock gets them from variables or
// files, and they appear nowhere else. (Wrong passwords are in the tests of locking/redis and locking/postgres.)
func TestAlsoSecrets(t *testing.T) {
	s := newSystems(t, kindRedis, kindPostgres)
	s.redis.CLI("config", "set", "requirepass", redisSecret)
	s.pg.PSQL("create role backup login password '" + postgresSecret + "'") // by scram-sha-256, the default
	s.pg.Hosts("local all postgres trust", "host all all 127.0.0.1/32 scram-sha-256")
	s.urls[kindPostgres] = strings.Replace(s.urls[kindPostgres], "postgres@", "backup@", 1)
	s.until("PostgreSQL to want passwords", func() bool {
		return s.start(append([]string{"status"}, s.also(kindPostgres)...)...).code() == 77
	})
	files := map[string]string{
		"redis.password": redisSecret + "\n",
		"passfile":       fmt.Sprintf("127.0.0.1:%d:*:backup:%s\n", s.pg.Port(), postgresSecret),
	}
	for name, content := range files {
		s.write(name, content)
	}
	byVariables := []string{"REPOLOCK_REDIS_PASSWORD=" + redisSecret, "REPOLOCK_POSTGRES_PASSWORD=" + postgresSecret}
	byFiles := map[string]string{
		kindRedis:    s.urls[kindRedis] + "&password-file=" + s.path("redis.password"),
		kindPostgres: s.urls[kindPostgres] + "&passfile=" + s.path("passfile"),
	}
	t.Run("variables", func(t *testing.T) { s.keepsSecrets(t, byVariables, s.urls) })
	t.Run("files", func(t *testing.T) { s.keepsSecrets(t, nil, byFiles) })
	t.Run("libpq and redis-cli", func(t *testing.T) {
		// The command gets the variables of other programs, because it can be one of those.
		s.keepsSecrets(t, []string{"REDISCLI_AUTH=" + redisSecret, "PGPASSWORD=" + postgresSecret}, s.urls)
	})
}

// with returns a copy with this environment.
func (s *systems) with(env []string) *systems {
	other := *s.site
	other.env = env
	return &systems{site: &other, urls: s.urls}
}

// keepsSecrets runs all commands, and looks for the secrets wherever one could be.
func (s *systems) keepsSecrets(t *testing.T, env []string, urls map[string]string) {
	s = s.with(append(slices.Clone(env), "TEST_MARK="+t.Name()))
	flags := []string{"--also", urls[kindRedis], "--also", urls[kindPostgres]}
	records := []string{"--audit", s.path("audit"), "--metrics-file", s.path("metrics.prom")}
	command := []string{"--", "sh", "-c", "env >environment; " + ticks("work")[3]}
	p := s.start(slices.Concat([]string{"run", "-v", "--look", "1s"}, flags, records, command)...)
	p.ticksOn("work")
	inArguments(t)
	if env == nil || strings.HasPrefix(env[0], "REPOLOCK_") {
		hasNone(t, "the command's environment", read(t, s.path("environment")))
		hasNone(t, "the environment of the command's process", read(t, fmt.Sprintf("/proc/%d/environ", s.pidIn("pid-work"))))
	}
	for _, args := range [][]string{
		{"status"}, {"status", "--json"}, {"status", "-v"}, {"doctor"}, {"doctor", "--json"},
		{"break-lock", "--stale", "--yes"}, {"run", "--json", "--audit", s.path("audit"), "--", "true"},
		{"run", "-v", "--wait", "1s", "--", "true"}, {"run", "--dry-run", "--", "true"},
	} {
		q := s.start(slices.Concat(args[:1], flags, args[1:])...)
		code := q.code()
		assert.That(t, slices.Contains([]int{0, 1, 75}, code), "%v: exit code %d: %s", args, code, q.stderr.String())
		hasNone(t, strings.Join(args, " "), q.stderr.String())
	}
	s.touch("stop-work")
	p.exits(0)
	_ = os.Remove(s.path("stop-work"))
	hasNone(t, "stderr with -v", p.stderr.String())
	hasNone(t, "the audit log", read(t, s.path("audit")))
	hasNone(t, "the metrics", read(t, s.path("metrics.prom")))
	hasNone(t, "history", s.said("history", s.path("audit")))
	for _, command := range []string{"run", "acquire", "status", "doctor", "break-lock"} {
		hasNone(t, command+" --help", s.said(command, "--help"))
	}

	acquire := []string{"acquire", "--exclusive", "--json", "--for-pid", fmt.Sprint(os.Getpid()), "--log", s.path("log")}
	out := s.said(slices.Concat(acquire, flags)...)
	hasNone(t, "acquire --json", out)
	var holding struct{ Token string }
	assert.OK(t, json.Unmarshal([]byte(out), &holding))
	inArguments(t) // of the keeper
	s.env = append(s.env, "REPOLOCK_TOKEN="+holding.Token)
	for _, command := range []string{"check", "renew", "release"} {
		hasNone(t, command+" --json", s.said(command, "--json"))
	}
	hasNone(t, "the keeper's log", "log: "+read(t, s.path("log"))) // it has failures alone
}

func hasNone(t *testing.T, what, text string) {
	t.Helper()
	assert.That(t, text != "", "%s: is empty", what)
	for _, secret := range secrets {
		before, _, found := strings.Cut(text, secret)
		assert.That(t, !found, "%s: has a secret after %q", what, before[max(0, len(before)-60):])
	}
}

// inArguments looks for the secrets in the arguments of all processes.
func inArguments(t *testing.T) {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		if args, _ := os.ReadFile(path); len(args) > 0 { // it can be gone
			hasNone(t, path, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
}

// said returns the output of a command that succeeds.
func (s *systems) said(args ...string) string {
	p := s.start(args...)
	p.exits(0)
	return p.stderr.String()
}
