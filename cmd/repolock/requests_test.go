package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/store"
)

// TestRequestsOfARun: docs/evidence/costs.md has the requests of a run on an S3 server, for a user who locks the repository
// for the first time, and later. A user without a cache directory sends those of the first time with each run.
func TestRequestsOfARun(t *testing.T) {
	server := fakes3.New("bucket")
	assert.OK(t, assert.Err(server.Objects().Put(t.Context(), "p/data/1", []byte("data"), store.PutOptions{})))
	var mu sync.Mutex
	third := sync.NewCond(&mu)
	sent := map[string]int{}
	counted := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := r.Method
		if r.URL.Query().Has("list-type") {
			kind = "LIST"
		}
		mu.Lock()
		sent[kind]++
		if kind == http.MethodPut && strings.Contains(r.URL.Path, "/lock.intent/") { // one of the three puts of a proof
			for third.Broadcast(); sent[kind] < 3; {
				third.Wait() // an earlier answer would save the third
			}
		}
		mu.Unlock()
		server.ServeHTTP(w, r)
	}))
	defer counted.Close()
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull} {
		t.Setenv(name, value)
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", t.TempDir())
	run := func(flags ...string) string {
		mu.Lock()
		clear(sent)
		mu.Unlock()
		args := append([]string{"-r", "s3://bucket/p?region=us-east-1&endpoint=" + counted.URL, "run"}, flags...)
		code, _, stderr := call(append(args, "--", "true")...)
		assert.That(t, code == 0, "%s: exit code %d: %s", flags, code, stderr)
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%d | %d | %d | %d", sent["PUT"], sent["LIST"], sent["GET"], sent["DELETE"])
	}
	table := "| a run of `true` | PUT | LIST | GET | DELETE |\n|---|---:|---:|---:|---:|\n"
	for _, c := range []struct{ name, mode string }{{"shared", "--shared"}, {"exclusive", "--exclusive"}} {
		assert.OK(t, os.RemoveAll(filepath.Join(cache, "repolock")))
		table += fmt.Sprintf("| %s, the user's first | %s |\n", c.name, run(c.mode))
		table += fmt.Sprintf("| %s, later | %s |\n", c.name, run(c.mode))
	}
	once := []string{"--exclusive", "--once-per", "12h", "--job", "x"}
	table += fmt.Sprintf("| … `--once-per`, that runs | %s |\n| … `--once-per`, that is skipped | %s |\n", run(once...), run(once...))
	page, err := os.ReadFile("../../docs/evidence/costs.md")
	assert.OK(t, err)
	assert.That(t, strings.Contains(string(page), table), "docs/evidence/costs.md doesn't have this table:\n%s", table)
}
