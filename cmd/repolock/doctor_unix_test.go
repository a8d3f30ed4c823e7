//go:build unix

package main

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/store"
)

func exitOf(t *testing.T, err error) int {
	t.Helper()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		assert.OK(t, err)
		return 0
	}
	return exit.ExitCode()
}

// ordinary returns a directory that every user can enter, with a copy of repolock, and the ordinary
// user who owns it. File modes and limits don't bind root. The user is nil if we are ordinary.
func ordinary(t *testing.T) (dir string, as *syscall.Credential) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ordinary") // other users might not reach TMPDIR
	assert.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin, err := exec.LookPath("repolock")
	assert.OK(t, err)
	copyFile(t, bin, filepath.Join(dir, "repolock"))
	assert.OK(t, os.Chmod(dir, 0o755))
	if os.Geteuid() == 0 {
		const nobody = 65534
		as = &syscall.Credential{Uid: nobody, Gid: nobody}
		assert.OK(t, os.Chown(dir, nobody, nobody))
	}
	return dir, as
}

// copyFile copies a program.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	assert.OK(t, err)
	defer in.Close()
	// A process that is forked while the file is open for writing keeps it open until it
	// executes its program. Until then the file can't be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	assert.OK(t, err)
	_, err = io.Copy(out, in)
	assert.OK(t, fault.Join(err, out.Close(), os.Chmod(to, 0o755))) // with any umask
}

// TestDoctorPermission: the table shows each lacking permission, and the exit code is 77. So it is for
// an audit log that can't be read.
func TestDoctorPermission(t *testing.T) {
	dir, as := ordinary(t)
	command := func(args ...string) (code int, out string) {
		cmd := exec.Command(filepath.Join(dir, "repolock"), args...)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: as}
		said, err := cmd.CombinedOutput()
		return exitOf(t, err), string(said)
	}
	repo := filepath.Join(dir, "repo")
	assert.OK(t, os.Mkdir(repo, 0o777))
	for _, test := range []struct {
		mode fs.FileMode
		says string // on stdout, or on stderr if there is no table
	}{
		{0o555, `put "index/locks/doctor-`},
		{0o333, `opening the repository`},
		{0, "opening the repository"},
	} {
		assert.OK(t, os.Chmod(repo, test.mode))
		code, out := command("-r", repo, "doctor")
		assert.That(t, code == fault.ExitPermission && strings.Contains(out, test.says) && strings.Contains(out, "locks need permissions") == (test.mode == 0o555),
			"mode %o: %d\n%s", test.mode, code, out)
	}
	log := filepath.Join(dir, "log")
	write(t, log, "")
	assert.OK(t, os.Chmod(log, 0))
	code, out := command("history", log)
	assert.That(t, code == fault.ExitPermission && strings.HasPrefix(out, "repolock: error: open ") && !strings.Contains(out, "hint"),
		"exit code %d\n%s", code, out)
}

// TestDoctorInterrupted: a signal ends doctor, which deletes its objects first, and says so in one line.
func TestDoctorInterrupted(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		bucket, held := fakes3.New("bucket"), make(chan struct{})
		var puts atomic.Int32
		hold := sync.OnceFunc(func() { close(held) })
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/list/") && puts.Add(1) > 1 {
				_, _ = io.Copy(io.Discard, r.Body)
				hold()
				<-r.Context().Done() // doctor gives it up
				return
			}
			bucket.ServeHTTP(w, r)
		}))
		objects := func() []string {
			keys, err := store.Keys(t.Context(), bucket.Objects(), "")
			assert.OK(t, err)
			return keys
		}
		var out said
		doctor := exec.Command("repolock", "-r", "s3://bucket/p?region=us-east-1&endpoint="+server.URL, "doctor")
		doctor.Stdout, doctor.Stderr = &out, &out
		assert.OK(t, doctor.Start())
		select {
		case <-held:
		case <-time.After(hang):
			t.Fatal("it writes nothing: ", out.String())
		}
		assert.That(t, len(objects()) != 0, "it has written nothing yet")
		assert.OK(t, doctor.Process.Signal(sig))
		code := exitOf(t, doctor.Wait())
		assert.That(t, code == fault.ExitSignal+int(sig) && out.String() == "repolock: error: "+sig.String()+"\n",
			"%v: exit code %d: %s", sig, code, out.String())
		left := objects()
		assert.That(t, len(left) == 0, "%v: left %q", sig, left)
		server.Close()
	}
}
