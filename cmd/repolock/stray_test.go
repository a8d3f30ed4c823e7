package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestStrays: files that a NAS box or a desktop keeps in the folders of the locks refuse no command and stay. status and
// doctor name them, and break-lock leaves them alone.
func TestStrays(t *testing.T) {
	repo := t.TempDir()
	t.Setenv("REPOLOCK_REPO", repo)
	const flag = "20260307T090000.012345678Z-8f14e45fceea167a5a36dedd4bea2543"
	names := []string{"._" + flag, ".DS_Store", "Thumbs.db", ".nfs00000000017a4c2e00000001", ".fuse_hidden0000001200000001", "#recycle/" + flag, "@eaDir/" + flag + "@SynoEAStream", "lost+found/x"}
	at := func(folder, name string) string {
		return filepath.Join(repo, "index", folder, filepath.FromSlash(name))
	}
	for _, folder := range []string{"lock.shared", "lock.intent"} {
		for _, name := range names {
			write(t, at(folder, name), "\x00\x05\x16\x07")
		}
	}
	for _, command := range []string{"backup", "prune"} {
		code, _, stderr := call(command, "--", "true")
		assert.That(t, code == 0 && stderr == "", "%s: %d, %s", command, code, stderr)
	}
	_, stdout, _ := call("status", "--wide")
	assert.That(t, strings.HasPrefix(stdout, "no locks\nignored, because it is no lock: index/lock.intent/#recycle/"+flag+"\n") &&
		strings.Count(stdout, "ignored, ") == 10 && strings.Contains(stdout, "\nand 6 more\nlooked in "), "status:\n%s", stdout)
	var status jsonStatus
	_, stdout, _ = call("--json", "status")
	assert.OK(t, json.Unmarshal([]byte(stdout), &status))
	assert.Equal(t, []int{len(status.Locks), len(status.Ignored)}, []int{0, 2 * len(names)}, "locks, and ignored files")
	assert.Equal(t, status.Ignored[0].Key, "index/lock.intent/#recycle/"+flag, "the first ignored file")
	code, stdout, _ := call("doctor")
	assert.That(t, code == 0 && strings.Contains(strings.Join(strings.Fields(stdout), " "), "it lists 0 lock objects; it ignores 16 files of other programs: index/lock.intent/#recycle/"+flag), "doctor: %d\n%s", code, stdout)
	for _, args := range [][]string{{}, {"--stale"}, {"--dead"}} {
		code, stdout, stderr := call(append([]string{"break-lock", "--yes"}, args...)...)
		assert.That(t, code == 0 && strings.HasPrefix(stdout, "nothing to break\n"), "break-lock: %d, %s%s", code, stdout, stderr)
	}
	for _, folder := range []string{"lock.shared", "lock.intent"} {
		for _, name := range names {
			_, err := os.Stat(at(folder, name))
			assert.OK(t, err)
		}
	}
}

// TestTwins: beside a program that makes a twin of each file that it sees, as macOS does on exFAT and SMB, backups and
// prunes acquire in their turn. (No test here has a Mac. This maker never removes a twin, which a Mac does.)
func TestTwins(t *testing.T) {
	repo := t.TempDir()
	t.Setenv("REPOLOCK_REPO", repo)
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		made := 0
		defer func() { stopped <- made }()
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				made += twins(t, filepath.Join(repo, "index"))
			}
		}
	}()
	var wg sync.WaitGroup
	for _, command := range []string{"backup", "prune"} {
		wg.Go(func() {
			for range 5 {
				code, _, stderr := call(command, "--wait", "10m", "--", "sleep", "0.05")
				assert.That(t, code == 0, "%s: %d, %s", command, code, stderr)
			}
		})
	}
	wg.Wait()
	close(stop)
	assert.That(t, <-stopped > 0, "no twins were made")
	_, stdout, _ := call("status")
	assert.That(t, strings.HasPrefix(stdout, "no locks\n"), "status:\n%s", stdout)
}

// twins makes a twin of each file of each folder of flags, and returns the number of those that it made.
func twins(t *testing.T, index string) (made int) {
	for _, folder := range []string{"lock.shared", "lock.intent"} {
		files, _ := os.ReadDir(filepath.Join(index, folder))
		for _, f := range files {
			twin := filepath.Join(index, folder, "._"+f.Name())
			if strings.HasPrefix(f.Name(), ".") {
				continue
			}
			if _, err := os.Stat(twin); err == nil {
				continue
			}
			if err := os.WriteFile(twin, []byte{0, 5, 0x16, 7}, 0o600); err == nil {
				made++
			} else if !os.IsNotExist(err) { // the folder was empty, and is gone
				t.Errorf("twin: %v", err)
			}
		}
	}
	return made
}
