//go:build unix

package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/states"
)

// doctorOf is the real command.
func doctorOf(t *testing.T, repo string, args ...string) *exec.Cmd {
	t.Helper()
	bin, err := exec.LookPath("repolock") // testscript.Main put it there
	must(t, err)
	return exec.Command(bin, append([]string{"-r", repo, "doctor"}, args...)...)
}

func exitOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		t.Fatal(err)
		return 0
	}
}

// TestDoctorPermission: the table shows each lacking permission, and the exit code is 77. File
// modes forbid root nothing, so the user nobody runs doctor.
func TestDoctorPermission(t *testing.T) {
	for _, test := range []struct {
		mode fs.FileMode
		says string // on stdout, or on stderr if there is no table
	}{
		{0o555, `put "index/locks/doctor-`},
		{0o333, `opening the repository`},
		{0, "opening the repository"},
	} {
		dir, err := os.MkdirTemp("/tmp", "doctor") // the user nobody might not reach TMPDIR
		must(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		repo := filepath.Join(dir, "repo")
		must(t, os.Mkdir(repo, 0o777))
		cmd := doctorOf(t, repo)
		if os.Geteuid() == 0 {
			cmd = asNobody(t, dir, cmd)
		}
		must(t, os.Chmod(repo, test.mode))
		out, err := cmd.CombinedOutput()
		if code := exitOf(t, err); code != exitPermission || !bytes.Contains(out, []byte(test.says)) {
			t.Errorf("mode %o: %d\n%s", test.mode, code, out)
		}
		if table := bytes.Contains(out, []byte("locks need permissions")); table != (test.mode == 0o555) {
			t.Errorf("mode %o: %s", test.mode, out)
		}
	}
}

// asNobody makes the user nobody run a command. That user must be able to reach it.
func asNobody(t *testing.T, dir string, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	const nobody = 65534
	from, err := os.Open(cmd.Path)
	must(t, err)
	defer from.Close()
	bin := filepath.Join(dir, filepath.Base(cmd.Path))
	to, err := os.OpenFile(bin, os.O_WRONLY|os.O_CREATE, 0o755)
	must(t, err)
	_, err = io.Copy(to, from)
	must(t, errors.Join(err, to.Close(), os.Chmod(dir, 0o755)))
	cmd.Path, cmd.Dir = bin, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// TestDoctorInterrupted: an interrupted doctor deletes its objects.
func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		repo := t.TempDir()
		cmd, out, unlock := heldUp(t, repo)
		must(t, cmd.Process.Signal(sig))
		time.Sleep(time.Second) // a signal has no answer
		unlock()
		if code := exitOf(t, cmd.Wait()); code != exitSignal+int(sig) {
			t.Errorf("%v: exit code %d: %s", sig, code, out.String())
		}
		if left := tree(t, repo); len(left) > 0 {
			t.Errorf("%v: left %v", sig, left)
		}
		if got := strings.Count(out.String(), "\n"); got != 1 {
			t.Errorf("%v: %s", sig, out.String())
		}
	}
}

// heldUp starts a doctor, waits until it has written scratch objects, and then blocks its
// writes with the lock that store/dir takes for each write. If the doctor has ended before
// that, heldUp starts another.
func heldUp(t *testing.T, repo string) (doctor *exec.Cmd, out *bytes.Buffer, unlock func()) {
	t.Helper()
	d, err := os.Open(repo)
	must(t, err)
	for end := time.Now().Add(hang); time.Now().Before(end); {
		out = &bytes.Buffer{}
		doctor = doctorOf(t, repo)
		doctor.Stdout, doctor.Stderr = out, out
		must(t, doctor.Start())
		for n := 1; n%200 != 0 || states.Of(doctor.Process.Pid) != "Z"; n++ {
			must(t, unix.Flock(int(d.Fd()), unix.LOCK_EX))
			if found, _ := filepath.Glob(filepath.Join(repo, "index/locks/doctor-*/list/new-*")); len(found) > 0 {
				return doctor, out, func() { d.Close() }
			}
			must(t, unix.Flock(int(d.Fd()), unix.LOCK_UN))
			time.Sleep(time.Millisecond)
		}
		_ = doctor.Wait()
	}
	t.Fatal("wrote nothing")
	return nil, nil, nil
}

// TestDoctorProgress: doctor shows progress on a terminal, or with --verbose.
func TestDoctorProgress(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--quiet", "--json", "--verbose"} {
		doctor := doctorOf(t, t.TempDir(), flag)
		doctor.Env = append(os.Environ(), "TERM=xterm")
		terminal, err := pty.Start(doctor)
		must(t, err)
		shown, _ := io.ReadAll(terminal) // it ends in EIO
		terminal.Close()
		if got, want := bytes.Contains(shown, []byte("doctor: list after write")), flag == "--verbose"; got != want {
			t.Errorf("%s: %q", flag, shown)
		}
		if bytes.Contains(shown, []byte("\x1b")) != (flag == "--verbose") || !bytes.Contains(shown, []byte("fit")) {
			t.Errorf("%s: %q", flag, shown)
		}
	}
}

// TestElsewhereAcquired: a token that has no keeper here can be of another user, or of another
// directory for sockets: the error says so, and where the lock can be seen.
func TestElsewhereAcquired(t *testing.T) {
	d := newDesk(t)
	h := d.acquire("--shared")
	other := newDesk(t)
	code, _, stderr := other.repolock("check", h.Token)
	for _, says := range []string{", or it was acquired by another user, or with another XDG_RUNTIME_DIR or TMPDIR (none in ", "repolock: hint: repolock status shows whether it is held; "} {
		if code != exitLost || !strings.Contains(stderr, says) || strings.Count(stderr, "\n") != 2 {
			t.Errorf("exit code %d, want %q\n%s", code, says, stderr)
		}
	}
	d.want(0, "", "release", h.Token)
}

// TestDeclined: with --json break-lock prints one object when the answer is no.
func TestDeclined(t *testing.T) {
	d := newDesk(t)
	repo := t.TempDir()
	write(t, filepath.Join(repo, "index", "lock.shared", "x"), "garbage")
	cmd := d.command(d.bin, "--json", "-r", repo, "break-lock")
	terminal, tty, err := pty.Open()
	must(t, err)
	defer terminal.Close()
	defer tty.Close()
	if _, err := terminal.WriteString("n\n"); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, &stdout, &stderr
	code := exitOf(t, cmd.Run())
	_, object, _ := strings.Cut(stderr.String(), "[y/N] ")
	if code != exitAborted || stdout.Len() > 0 || !strings.HasPrefix(object, `{"error":"declined","message":"nothing was deleted","exit_code":1,`) || strings.Count(object, "\n") != 1 {
		t.Errorf("exit code %d\n%s%s", code, stdout.String(), stderr.String())
	}
}

// TestUnreadableLog: history exits with 77 for a log that it has no permission to read.
func TestUnreadableLog(t *testing.T) {
	d := newDesk(t)
	bin, dir := d.bin, t.TempDir()
	log := filepath.Join(dir, "log")
	write(t, log, "")
	must(t, os.Chmod(log, 0))
	cmd := d.command(bin, "history", log)
	if os.Getuid() == 0 { // root can read all files
		must(t, os.Chmod(dir, 0o700))
		copied, err := os.MkdirTemp("/tmp", "history")
		must(t, err)
		defer os.RemoveAll(copied)
		bin = filepath.Join(copied, "repolock")
		if out, err := exec.Command("cp", d.bin, bin).CombinedOutput(); err != nil || os.Chmod(copied, 0o755) != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cmd = d.command(bin, "history", log)
		cmd.Dir = copied
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if code := exitOf(t, cmd.Run()); code != exitPermission || !strings.HasPrefix(stderr.String(), "repolock: error: open ") || strings.Contains(stderr.String(), "hint") {
		t.Errorf("exit code %d\n%s", code, stderr.String())
	}
}
