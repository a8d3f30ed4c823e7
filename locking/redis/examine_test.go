//go:build programs

package redis

import (
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/locking"
)

// finding returns a finding by name.
func finding(t *testing.T, b *Backend, what string) locking.Finding {
	t.Helper()
	found, err := b.Examine(t.Context())
	assert.OK(t, err)
	for _, f := range found {
		if f.What == "" || f.Found == "" || (f.Advice == "") != (f.Severity == locking.Good) ||
			strings.ContainsAny(f.Found+f.Advice, "\r\n") {
			t.Errorf("%+v", f)
		}
	}
	i := slices.IndexFunc(found, func(f locking.Finding) bool { return f.What == what })
	if i < 0 {
		return locking.Finding{}
	}
	return found[i]
}

// TestExamine: each setting that loses locks is found.
func TestExamine(t *testing.T) {
	for _, c := range []struct {
		args  []string
		what  string
		want  locking.Severity
		found string
	}{
		{nil, "server", locking.Good, "Redis 7."},
		{nil, "replication", locking.Good, "without replicas"},
		{nil, "persistence", locking.Risky, "no append-only file"},
		{nil, "eviction", locking.Good, "noeviction"},
		{nil, "scripts", locking.Good, "works"},
		{nil, "clock", locking.Good, "ahead"},
		{[]string{"--appendonly", "yes"}, "persistence", locking.Risky, "everysec"},
		{[]string{"--appendonly", "yes", "--appendfsync", "no"}, "persistence", locking.Risky, "appendfsync no"},
		{[]string{"--appendonly", "yes", "--appendfsync", "always"}, "persistence", locking.Good, "always"},
		{[]string{"--maxmemory-policy", "allkeys-lru"}, "eviction", locking.Risky, "allkeys-lru, maxmemory 0"},
		{[]string{"--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb"}, "eviction", locking.Bad, "allkeys-lru"},
		{[]string{"--maxmemory-policy", "volatile-ttl", "--maxmemory", "100mb"}, "eviction", locking.Bad, "volatile-ttl"},
		{[]string{"--maxmemory", "100mb"}, "eviction", locking.Good, "noeviction"},
		{[]string{"--replicaof", "127.0.0.1 1"}, "replication", locking.Bad, "replica of 127.0.0.1"},
		{[]string{"--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "no"}, "replication", locking.Bad,
			"replica of 127.0.0.1"},
		{[]string{"--cluster-enabled", "yes"}, "cluster", locking.Risky, "cluster"},
		{[]string{"--rename-command", "EVAL", ""}, "scripts", locking.Bad, "refuses EVAL"},
		{[]string{"--rename-command", "CONFIG", "", "--appendonly", "yes"}, "persistence", locking.Risky,
			"refuses CONFIG"},
		{[]string{"--rename-command", "TIME", ""}, "clock", locking.Good, "refuses TIME"},
		{[]string{"--rename-command", "INFO", ""}, "settings", locking.Risky, "refuses INFO"},
	} {
		s := redistest.New(t, c.args...)
		f := finding(t, client(t, s.Addr()), c.what)
		if f.Severity != c.want || !strings.Contains(f.Found, c.found) {
			t.Errorf("%q: %+v, want %v, %q", c.args, f, c.want, c.found)
		}
		s.Kill()
	}
}

// TestExamineReplicas: a master with a replica is doubtful, and its replica is unfit.
func TestExamineReplicas(t *testing.T) {
	master := redistest.New(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := redistest.New(t, "--replicaof", host+" "+port)
	becomes(t, func() bool { return strings.Contains(replica.CLI("ROLE"), "connected") })
	if f := finding(t, client(t, master.Addr()), "replication"); f.Severity != locking.Risky ||
		!strings.Contains(f.Found, "replicas: 1") {
		t.Errorf("%+v", f)
	}
	assert.Says(t, lockcheck.Fails(t.Context(), t, client(t, replica.Addr()), "k"), locking.ErrUnfit, "name the master")
}

// TestExamineRefused: what an ACL refuses is found, and is no error.
func TestExamineRefused(t *testing.T) {
	s, b := limited(t)
	if f := finding(t, b, "settings"); f.Severity != locking.Risky || !strings.Contains(f.Found, "NOPERM") {
		t.Errorf("%+v", f)
	}
	assert.Equal(t, finding(t, b, "scripts").Severity, locking.Good)
	s.CLI("ACL", "SETUSER", "app", "+info", "+time", "-eval")
	assert.Equal(t, finding(t, b, "scripts").Severity, locking.Bad)
}

// TestCluster: a lock whose slot is on no node, or on another, can't be had.
func TestCluster(t *testing.T) {
	s := redistest.New(t, "--cluster-enabled", "yes")
	b := client(t, s.Addr())
	_ = lockcheck.Fails(t.Context(), t, b, "k") // without slots
	s.CLI("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	becomes(t, func() bool { return strings.Contains(s.CLI("CLUSTER", "INFO"), "cluster_state:ok") })
	h := lockcheck.Acquire(t, b, "k", ttl) // whose note is in another slot
	lockcheck.Renew(t, b, h)
	lockcheck.Release(t, b, h)
}
