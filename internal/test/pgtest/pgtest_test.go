//go:build programs

package pgtest_test

import (
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestServer: a server keeps its data over a crash and a restart, and a standby follows it.
func TestServer(t *testing.T) {
	s := pgtest.New(t)
	s.PSQL("create table t (n int); insert into t values (7)")
	s.Stop()
	s.Cont()
	s.PSQL("checkpoint")
	s.Kill()
	s.Start()
	s.Restart()
	assert.Equal(t, s.PSQL("select n from t"), "7", "after a crash")
	assert.Equal(t, s.Standby().PSQL("select pg_is_in_recovery()"), "t", "whether a standby is in recovery")
}
