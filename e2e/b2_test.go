//go:build unix

package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/open"
)

// These tests run the engine on B2: on the fake of its native API, in a process of its own.

func init() {
	for name, value := range map[string]string{"B2_APPLICATION_KEY_ID": "000a", "B2_APPLICATION_KEY": "K000-e2e"} {
		if os.Getenv(name) == "" {
			if err := os.Setenv(name, value); err != nil {
				panic(err)
			}
		}
	}
}

// b2Server is the fake. Its knobs and its log are under /fake/.
type b2Server struct {
	t   *testing.T
	url string
}

// serveB2 starts the fake with these flags. The fake ends with the test.
func serveB2(t *testing.T, flags ...string) *b2Server {
	t.Helper()
	program := filepath.Join(t.TempDir(), "fakeb2")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "../internal/test/fakeb2/serve").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := exec.Command(program, append([]string{"-bucket", "a-bucket"}, flags...)...)
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	ready, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(ready), "ready ")
	if err != nil || !ok {
		t.Fatalf("%q, %v", ready, err)
	}
	return &b2Server{t, "http://" + address}
}

func (s *b2Server) repo() string { return "b2://a-bucket/some/prefix?endpoint=" + s.url }

func (s *b2Server) locker() *replock.Locker {
	s.t.Helper()
	st, err := open.Store(s.t.Context(), s.repo())
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := replock.New(st, replock.Options{Name: "b2", TTL: lasting}) // one without a name looks soon after
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func (s *b2Server) ask(method, what string, answer any) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+"/fake/"+what, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s, %v: %s", what, res.Status, err, raw)
	}
	if answer != nil {
		if err := json.Unmarshal(raw, answer); err != nil {
			s.t.Fatal(err)
		}
	}
}

// versions returns all versions of the bucket, with hide markers and hidden versions.
func (s *b2Server) versions() (versions []string) {
	s.t.Helper()
	var all []struct{ Name, Action string }
	s.ask(http.MethodGet, "versions?bucket=a-bucket", &all)
	for _, v := range all {
		versions = append(versions, v.Action+" "+v.Name)
	}
	return versions
}

func (s *b2Server) has(what string, n int) {
	s.t.Helper()
	if versions := s.versions(); len(versions) != n {
		s.t.Errorf("%s: %d versions, want %d: %q", what, len(versions), n, versions)
	}
}

// took returns the calls since the last time, by name.
func (s *b2Server) took() map[string]int {
	s.t.Helper()
	var log []struct{ Call string }
	s.ask(http.MethodGet, "log", &log)
	calls := map[string]int{}
	for _, r := range log {
		calls[strings.TrimPrefix(r.Call, "b2_")]++
	}
	return calls
}

func acquire(t *testing.T, l *replock.Locker, mode replock.Mode) *replock.Lock {
	t.Helper()
	take := l.Shared
	if mode == replock.Exclusive {
		take = l.Exclusive
	}
	k, err := take(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestB2 counts the requests of a lock's life, once a process has signed in, and the versions
// that exist then.
func TestB2(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		mode                    replock.Mode
		objects                 int
		acquire, renew, release map[string]int
	}{
		{
			replock.Shared, 1,
			map[string]int{"upload_file": 1, "list_file_names": 1},
			map[string]int{"list_file_names": 1, "upload_file": 1, "list_file_versions": 1, "delete_file_version": 1},
			map[string]int{"list_file_versions": 1, "delete_file_version": 1},
		},
		{
			replock.Exclusive, 2,
			map[string]int{"upload_file": 2, "list_file_names": 2},
			map[string]int{"list_file_names": 2, "upload_file": 2, "list_file_versions": 2, "delete_file_version": 2},
			map[string]int{"download_file_by_name": 1, "list_file_versions": 2, "delete_file_version": 2}, // it looks who holds lock.exclusive
		},
	} {
		t.Run(fmt.Sprint(test.mode), func(t *testing.T) {
			t.Parallel()
			s := serveB2(t)
			l := s.locker()
			for round := range 3 {
				s.took()
				counts := func(what string, want map[string]int) {
					t.Helper()
					got := s.took()
					delete(got, "get_upload_url") // each of two parallel uploads has a URL, once
					// The first round signs in.
					if round > 0 && !maps.Equal(got, want) {
						t.Errorf("%s took %v, want %v", what, got, want)
					}
				}
				k := acquire(t, l, test.mode)
				counts("acquire", test.acquire)
				s.has("acquired", test.objects)
				for range 2 {
					if err := k.Renew(t.Context()); err != nil {
						t.Fatal(err)
					}
					counts("renew", test.renew)
					s.has("renewed", test.objects)
				}
				if err := k.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				counts("release", test.release)
				s.has("released", 0)
			}
		})
	}
}

// TestB2Excludes: exclusive and shared locks exclude each other, and a holder finds out that
// its lock was broken.
func TestB2Excludes(t *testing.T) {
	t.Parallel()
	s := serveB2(t)
	a, b := s.locker(), s.locker()
	one, two := acquire(t, a, replock.Shared), acquire(t, b, replock.Shared)
	if _, err := b.Exclusive(t.Context(), "prune"); !errors.Is(err, replock.ErrHeld) {
		t.Error(err)
	}
	for _, k := range []*replock.Lock{one, two} {
		if err := k.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	s.has("released", 0)

	k := acquire(t, a, replock.Exclusive)
	if _, err := b.Shared(t.Context(), "backup"); !errors.Is(err, replock.ErrHeld) {
		t.Error(err)
	}
	if err := k.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	if broken, err := b.Break(t.Context(), replock.BreakOptions{}); err != nil || len(broken) == 0 {
		t.Errorf("%v, %v", broken, err)
	}
	s.has("broken", 0)
	if err := k.Renew(t.Context()); !errors.Is(err, replock.ErrLost) {
		t.Error(err)
	}
	if err := k.Release(t.Context()); err != nil && !errors.Is(err, replock.ErrLost) {
		t.Error(err)
	}
	s.has("lost", 0)
}

// TestB2Contenders: of several contenders one holds the lock at a time, and they leave
// nothing.
func TestB2Contenders(t *testing.T) {
	t.Parallel()
	s := serveB2(t)
	var in atomic.Int32
	var entered atomic.Int32
	done := make(chan struct{})
	const contenders, rounds = 6, 5
	for range contenders {
		l := s.locker()
		go func() {
			defer func() { done <- struct{}{} }()
			for range rounds {
				k, err := l.Exclusive(t.Context(), "prune")
				if errors.Is(err, replock.ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				entered.Add(1)
				if n := in.Add(1); n != 1 {
					t.Errorf("%d are in", n)
				}
				if err := k.Renew(t.Context()); err != nil {
					t.Error(err)
				}
				in.Add(-1)
				if err := k.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for range contenders {
		<-done
	}
	if entered.Load() == 0 {
		t.Error("no client ever got in")
	}
	t.Logf("%d of %d got in", entered.Load(), contenders*rounds)
	s.has("all is over", 0)
}

// TestB2Failures: a lock survives expired tokens and errors that need another upload URL.
func TestB2Failures(t *testing.T) {
	t.Parallel()
	s := serveB2(t)
	l := s.locker()
	k := acquire(t, l, replock.Exclusive)
	s.ask(http.MethodPost, "expire", nil)
	if err := k.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	s.has("renewed with new tokens", 2)
	for _, call := range []string{"b2_upload_file", "b2_list_file_versions", "b2_delete_file_version", "b2_list_file_names"} {
		s.ask(http.MethodPost, "fail?times=1&status=503&code=service_unavailable&call="+call, nil)
		_ = k.Renew(t.Context()) // this call can fail once
		if err := k.Renew(t.Context()); err != nil {
			t.Errorf("after a failure of %s: %v", call, err)
		}
		s.has("renewed after a failure", 2)
	}
	s.ask(http.MethodPost, "expire", nil)
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
	s.has("released", 0)
}
