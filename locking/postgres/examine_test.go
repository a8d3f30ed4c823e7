//go:build programs

package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/postgres"
)

// examined checks the findings of a server: those that aren't named are good.
func examined(t *testing.T, b *postgres.Backend, want map[string]locking.Verdict) map[string]locking.Finding {
	t.Helper()
	findings, err := b.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]locking.Finding)
	for _, f := range findings {
		t.Logf("%+v", f)
		all[f.What] = f
		if f.Verdict != want[f.What] || (f.Advice == "") != (f.Verdict == locking.Good) || f.Found == "" || strings.ContainsAny(f.Found+f.Advice, "\n\t") {
			t.Errorf("%+v, want %v", f, want[f.What])
		}
	}
	for _, what := range []string{"version", "role", "pooler", "sessions", "failover", "clock", "timeouts", "silent peers"} {
		if _, ok := all[what]; ok == (want["pooler"] == locking.Bad && (what == "timeouts" || what == "silent peers")) {
			t.Errorf("about %s: %v", what, ok)
		}
	}
	return all
}

// TestExamine: each setting that matters has a finding.
func TestExamine(t *testing.T) {
	s := pgtest.New(t)
	found := examined(t, at(t, s.Address()), nil)
	for what, text := range map[string]string{
		"version": "PostgreSQL ", "role": "primary", "pooler": "none", "timeouts": "none", "silent peers": "tcp_user_timeout",
		"sessions": " of 297 are in use", "failover": "no standby", "clock": " ahead of the server's",
	} {
		if !strings.Contains(found[what].Found, text) {
			t.Errorf("%s: %q", what, found[what].Found)
		}
	}
	socket := with(t, s, func(to *postgres.Target) { to.Host, to.Port = s.Socket(), uint16(s.Port()) })
	if f := examined(t, socket, nil)["silent peers"]; !strings.Contains(f.Found, "socket") {
		t.Errorf("%+v", f)
	}
	standby := s.Standby()
	eventually(t, "the standby is connected", func() bool { return s.PSQL("select count(*) from pg_stat_replication") == "1" })
	examined(t, at(t, standby.Address()), map[string]locking.Verdict{"role": locking.Bad})
	examined(t, at(t, s.Address()), map[string]locking.Verdict{"failover": locking.Doubtful})
}

// TestExamineTimeouts: a lock outlives the timeouts that the server has for others.
func TestExamineTimeouts(t *testing.T) {
	s := pgtest.New(t, "idle_session_timeout=200ms", "statement_timeout=100s")
	b := at(t, s.Address())
	f := examined(t, b, nil)["timeouts"]
	if f.Found != "idle_session_timeout 200ms, statement_timeout 100000ms; the session of a lock turns them off" {
		t.Errorf("%+v", f)
	}
	h := acquire(t, b)
	time.Sleep(time.Second)
	if err := b.Renew(t.Context(), h); err != nil {
		t.Errorf("after the server's timeout: %v", err)
	}
	if err := b.Release(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// TestExaminePooler: a pooler is never good, and one that keeps no sessions is bad.
func TestExaminePooler(t *testing.T) {
	s := pgtest.New(t)
	for _, mode := range []string{"session", "transaction", "statement"} {
		address := pgtest.Bouncer(t, s, mode)
		f := examined(t, at(t, address), map[string]locking.Verdict{"pooler": locking.Bad})["pooler"]
		if strings.Contains(f.Found, "for a "+mode) != (mode != "session") {
			t.Errorf("%s: %+v", mode, f)
		}
		want := locking.Bad
		if mode == "session" {
			want = locking.Doubtful
		}
		examined(t, pooled(t, address), map[string]locking.Verdict{"pooler": want})
	}
}

// TestExamineSessions: a server or a user with few sessions left is doubtful.
func TestExamineSessions(t *testing.T) {
	s := pgtest.New(t, "max_connections=12", "max_wal_senders=0")
	examined(t, at(t, s.Address()), map[string]locking.Verdict{"sessions": locking.Doubtful})
	s = pgtest.New(t)
	s.PSQL("create role bob login connection limit 2")
	b := with(t, s, func(to *postgres.Target) { to.User = "bob" })
	if f := examined(t, b, map[string]locking.Verdict{"sessions": locking.Doubtful})["sessions"]; !strings.Contains(f.Found, "the user has at most 2") {
		t.Errorf("%+v", f)
	}
}

// TestExamineUnreachable: a server that can't be asked is an error.
func TestExamineUnreachable(t *testing.T) {
	if _, err := at(t, refusing(t)).Examine(t.Context()); !errors.Is(err, locking.ErrUnreachable) {
		t.Error(err)
	}
}
