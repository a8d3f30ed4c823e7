//go:build programs

package postgres_test

import (
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// TestConformance: the backend keeps the contract on a real server.
func TestConformance(t *testing.T) {
	s := pgtest.New(t)
	lockingtest.Run(t, lockingtest.Config{
		Rounds:  rounds.Fewer(1000, 100),
		New:     func(t *testing.T) locking.Backend { return at(t, s.Address()) },
		Keys:    []string{"a", "nightly backup: höst/db 'x' \\ \"y\" $1 \n", strings.Repeat("k", 512)},
		BadKeys: []string{"", "a\x00b", "\xff", strings.Repeat("k", 513)},
	})
	if left := s.PSQL("select count(*) from pg_locks where locktype = 'advisory'"); left != "0" {
		t.Errorf("%s locks are left", left)
	}
}
