//go:build linux && programs

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// BenchmarkDisk measures locks beside many files of a repository, and the status of many locks, in directories: see
// docs/evidence/benchmarks.md.
func BenchmarkDisk(b *testing.B) {
	work := b.TempDir()
	path := filepath.Join(work, "repolock")
	in(b, work, "command -v strace; mkdir -p files/index flags")
	in(b, "..", "CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "+path+" ./cmd/repolock")
	files, locks := rounds.Fewer(100_000, 1000), rounds.Fewer(10_000, 100)
	for i := range files {
		assert.OK(b, os.WriteFile(filepath.Join(work, "files", "index", fmt.Sprintf("%064x", i)), nil, 0o600))
	}
	flags(b, openStore(b, filepath.Join(work, "flags")), locks)
	run := func(lock string) *subject {
		name := fmt.Sprintf("repolock run %s -- true, among %d files in index/", lock, files)
		return &subject{row: row{name: name}, args: []string{path, "run", "--quiet", lock, "--repo", filepath.Join(work, "files"), "--", "true"}}
	}
	status := &subject{row: row{name: fmt.Sprintf("repolock status of %d flags", locks)}, args: []string{path, "status", "--repo", filepath.Join(work, "flags")}}
	all := []*subject{run("--shared"), run("--exclusive"), status}
	times := rounds.Fewer(10, 1)
	inTurns(b, all, times)
	for range times {
		for _, s := range all {
			s.memory = append(s.memory, peakMemory(b, s.args))
		}
	}
	for _, s := range all {
		s.looks = looks(b, filepath.Join(work, "calls"), s)
	}
	fmt.Printf("\n%s", table{{"locks in a directory", rows(all)}}.separate(costs))
}

// looks returns how often a program looks at a name in a directory.
func looks(b *testing.B, summary string, s *subject) (calls int) {
	b.Helper()
	out, err := s.command("strace", "-f", "-qq", "-c", "-e", "trace=newfstatat,lstat,stat,statx", "-o", summary).CombinedOutput()
	s.ended(b, err, out)
	raw, err := os.ReadFile(summary)
	assert.OK(b, err)
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line) // % time, seconds, usecs/call, calls, errors, syscall
		if len(words) > 3 && words[len(words)-1] == "total" {
			calls, err = strconv.Atoi(words[3])
			assert.OK(b, err)
		}
	}
	if calls == 0 {
		b.Fatalf("strace has no total: %s", raw)
	}
	return calls
}

// peakMemory runs a program and returns its largest resident memory, or that of one of its own processes.
//
// The kernel also counts the memory that a process had before its exec, and a child of ours begins with ours.
// So a shell, which is small, starts the program and ends before the program begins. We inherit the program,
// and read its usage.
func peakMemory(b *testing.B, args []string) (bytes int64) {
	b.Helper()
	assert.OK(b, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	blocked, begin, err := os.Pipe()
	assert.OK(b, err)
	defer blocked.Close()
	defer begin.Close()
	script := `{ read -r begin <&3; exec "$@" 3<&-; } >/dev/null 2>&1 & echo $!`
	c := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	c.ExtraFiles = []*os.File{blocked}
	out, err := c.Output()
	assert.OK(b, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	assert.OK(b, err)
	_, err = begin.WriteString("begin\n")
	assert.OK(b, err)
	var status unix.WaitStatus
	var usage unix.Rusage
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		_, err = unix.Wait4(pid, &status, 0, &usage)
	}
	if err != nil || !status.Exited() || status.ExitStatus() != 0 {
		b.Fatalf("%v: %v, wait status %#x", args, err, int(status))
	}
	return usage.Maxrss << 10
}

// flags puts the flags of n shared locks. The first ones of a listing are the youngest, as if
// their holders refreshed them.
func flags(b *testing.B, s store.Store, n int) {
	b.Helper()
	key, body := specimen(b, s)
	stem := key[:strings.LastIndex(key, "-")+1]
	eachOf(b, 16, n, func(i int) error {
		id := fmt.Sprintf("%032x", n-1-i)
		return assert.Err(s.Put(b.Context(), stem+id, body(id), store.PutOptions{}))
	})
}

// specimen returns the key and the body of a lock of another machine: a real lock's body, with another id and
// the present time.
func specimen(b *testing.B, s store.Store) (key string, body func(id string) []byte) {
	b.Helper()
	l, err := replock.New(s, replock.Options{})
	assert.OK(b, err)
	k, err := l.TryShared(b.Context(), "backup")
	assert.OK(b, err)
	raw, _, err := s.Get(b.Context(), k.Key(), 1<<16)
	assert.OK(b, errors.Join(err, k.Release(b.Context())))
	fields := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // a float would round the largest of them
	assert.OK(b, decoder.Decode(&fields))
	fields["host_id"], fields["boot_id"] = "another", "another"
	return k.Key(), func(id string) []byte {
		mine, now := maps.Clone(fields), time.Now().UTC()
		mine["id"], mine["refreshed_at"], mine["expires_at"] = id, now, now.Add(replock.DefaultTTL)
		raw, err := json.Marshal(mine)
		if err != nil {
			panic(err) // it was JSON before
		}
		return raw
	}
}

// eachOf is parallel.Each, of calls that must succeed.
func eachOf(b *testing.B, limit, n int, f func(i int) error) {
	b.Helper()
	parallel.Each(limit, n, func(i int) {
		assert.Is(b, f(i), nil)
	})
	if b.Failed() {
		b.FailNow()
	}
}
