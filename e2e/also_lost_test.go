//go:build linux && programs && !minio

package e2e

import (
	"os"
	"slices"
	"testing"
	"time"
)

// TestAlsoLostOne: one of several locks is lost. The command ends, the message says which lock
// it was, and the others are released.
func TestAlsoLostOne(t *testing.T) {
	remove := func(s *systems, name string) {
		if err := os.Remove(s.path(name)); err != nil {
			s.t.Fatal(err)
		}
	}
	for kind, lose := range map[string]func(*systems){
		kindRedis: func(s *systems) { s.redis.CLI("del", "bext:lock:nightly") },
		kindPostgres: func(s *systems) {
			s.pg.PSQL("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
		},
		kindFleet: func(s *systems) { remove(s, "fleet/nightly.lock") },
		kindBeads: func(s *systems) { remove(s, "beads/.beads/.exclusive-lock") },
	} {
		t.Run(kind, func(t *testing.T) {
			s := newSystems(t)
			began := time.Now()
			flags := append(s.also(allKinds...), "--look", "1s", "--repo", s.path("repo"), "--audit", s.path("audit"))
			p := s.hold("backup", "work", flags...)
			pid := s.pidIn("pid-work")
			lost := time.Now()
			lose(s)
			p.exits(79)
			if alive(pid) {
				t.Error("the command is still there")
			}
			p.contains(s.urls[kind])
			t.Logf("repolock ended %v after the loss: %s", time.Since(lost).Round(time.Millisecond), p.stderr.String())
			t.Logf("audit log:%s", s.auditLog())
			s.releasedInReverse(1+len(allKinds), 1+slices.Index(allKinds, kind))
			for _, e := range s.audited() {
				if most := time.Since(began).Seconds() + 1; e.Held > most {
					t.Errorf("%s after %v s, and the test began %v s ago", e.Event, e.Held, most)
				}
			}
			if kind == kindRedis { // the note about the holder isn't removed with a lock that is gone
				if left := s.redis.CLI("pttl", "repolock:holder:bext:lock:nightly"); left == "-1" {
					t.Error("the note about the holder doesn't expire")
				}
				s.redis.CLI("del", "repolock:holder:bext:lock:nightly")
			}
			s.nothingLeft()
		})
	}
}
