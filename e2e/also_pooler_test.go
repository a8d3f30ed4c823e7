//go:build linux && programs && !minio

package e2e

import (
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/pgtest"
)

// TestAlsoPooler: pgbouncer is in front of PostgreSQL. A pool that lends sessions for a
// transaction is refused. One that lends them for as long as a connection lasts works, if the
// user declares it.
func TestAlsoPooler(t *testing.T) {
	s := newSystems(t, kindPostgres)
	const declared = "&pooler=session"
	for _, c := range []struct {
		mode, declared string
		code           int
		says           string
	}{
		{"transaction", "", 78, "a pooler is in between"},
		{"transaction", declared, 78, "lends a session for a transaction"},
		{"statement", "", 78, "a pooler is in between"},
		{"statement", declared, 78, "for a statement"},
		{"session", "", 78, "declare that by pooler=session"},
		{"session", declared, 0, ""},
	} {
		at := strings.Replace(s.urls[kindPostgres], s.pg.Address(), pgtest.Bouncer(t, s.pg, c.mode), 1) + c.declared
		p := s.start("run", "--also", at, "--", "touch", "ran")
		p.exits(c.code)
		p.contains(c.says)
		said := p.stderr.String()
		if n := strings.Count(said, "repolock: error: "); c.code != 0 && (n != 1 || strings.Count(said, "\n") > 2) {
			t.Errorf("%s%s: it isn't one line, and perhaps a hint: %s", c.mode, c.declared, said)
		}
		if ran := s.exists("ran"); ran != (c.code == 0) {
			t.Errorf("%s%s: the command ran: %v", c.mode, c.declared, ran)
		}
		t.Logf("%s%s: exit code %d: %s", c.mode, c.declared, p.code(), said)
		s.until("the lock to be free", hang, func() bool { return !s.held(kindPostgres) })
	}

	// By the pool that works, a lock excludes one without the pool.
	url := strings.Replace(s.urls[kindPostgres], s.pg.Address(), pgtest.Bouncer(t, s.pg, "session"), 1) + declared
	p := s.hold("run", "work", "--also", url)
	q := s.start("run", "--also", s.urls[kindPostgres], "--", "touch", "ran twice")
	q.exits(75)
	if s.exists("ran twice") {
		t.Error("two held the lock")
	}
	p.end("work")
	s.until("the lock to be free", hang, func() bool { return !s.held(kindPostgres) })
}
