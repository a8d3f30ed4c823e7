//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/states"
)

// Other users can read the tests' files, as with most users' umask.
func init() { syscall.Umask(0o022) }

// desk is a repository and a directory for the sockets of a test's keepers.
type desk struct {
	t         *testing.T
	repo, run string
	dir       string // in which commands run: "": the test's
}

// newDesk returns a desk whose repository is the directory in which commands run.
func newDesk(t *testing.T) *desk {
	t.Helper()
	d := newDeskOn(t, t.TempDir())
	d.dir = d.repo
	return d
}

func newDeskOn(t *testing.T, repo string) *desk {
	t.Helper()
	run, err := os.MkdirTemp("/tmp", "run") // TMPDIR can be too long for sockets
	assert.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(run) })
	d := &desk{t: t, repo: repo, run: run}
	t.Cleanup(func() { // a test that failed must leave no keeper
		for _, h := range d.holders() {
			_ = syscall.Kill(h, syscall.SIGKILL)
		}
	})
	return d
}

func (d *desk) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "REPOLOCK_REPO="+d.repo, "XDG_RUNTIME_DIR="+d.run)
	return cmd
}

// repolock runs repolock, and returns its exit code and its output.
func (d *desk) repolock(args ...string) (code int, stdout, stderr string) {
	d.t.Helper()
	cmd := d.command("repolock", args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	code = exitOf(d.t, cmd.Run())
	return code, out.String(), errs.String()
}

// acquiring is an acquire for this process, unless the flags name another one.
func (d *desk) acquiring(flags ...string) *exec.Cmd {
	return d.command("repolock", append([]string{"--json", "acquire", "--for-pid", fmt.Sprint(os.Getpid())}, flags...)...)
}

func (d *desk) acquire(flags ...string) session.Holding {
	d.t.Helper()
	out, err := d.acquiring(flags...).Output()
	assert.OK(d.t, err)
	var h session.Holding
	assert.OK(d.t, json.Unmarshal(out, &h))
	return h
}

// script starts the process of a script, which ends with the test.
func (d *desk) script() *exec.Cmd {
	d.t.Helper()
	cmd := d.command("sleep", "1000")
	assert.OK(d.t, cmd.Start())
	d.t.Cleanup(func() { kill(cmd) })
	return cmd
}

// kill kills a process, and waits for its end.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// forScript names the process that a lock is for.
func forScript(script *exec.Cmd) string { return "--for-pid=" + fmt.Sprint(script.Process.Pid) }

// want runs a command on the token. The command must exit with this code and print this text.
func (d *desk) want(code int, says, do, token string) {
	d.t.Helper()
	got, stdout, stderr := d.repolock(do, token)
	assert.That(d.t, got == code && strings.Contains(stdout+stderr, says),
		"%s: exit code %d, want %d, and %q\n%s%s", do, got, code, says, stdout, stderr)
}

// holders returns the pids of the holders and of the waiters.
func (d *desk) holders() (pids []int) {
	d.t.Helper()
	_, stdout, _ := call("-r", d.repo, "--json", "status")
	var s jsonStatus
	_ = json.Unmarshal([]byte(stdout), &s)
	for _, l := range s.Locks {
		if l.PID != 0 && l.PID != os.Getpid() {
			pids = append(pids, l.PID)
		}
	}
	return pids
}

// waits starts an acquire of the exclusive lock, which another process has, and returns when it waits.
func (d *desk) waits(flags ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	d.t.Helper()
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd = d.acquiring(append(flags, "--exclusive", "--wait", "forever")...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	assert.OK(d.t, cmd.Start())
	until(d.t, "it waits", func() bool { return len(d.holders()) == 2 })
	return cmd, stdout, stderr
}

// left returns the number of files that locks and keepers have left.
func (d *desk) left() (n int) {
	for _, dir := range []string{d.repo, filepath.Join(d.run, "repolock")} {
		_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				n++
			}
			return nil // the file vanished meanwhile
		})
	}
	return n
}

// free waits until left returns 0.
func (d *desk) free() {
	d.t.Helper()
	until(d.t, "nothing is left", func() bool { return d.left() == 0 })
}

// fullPipe returns the end of a pipe that takes no more. No process reads it.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	ours, theirs, err := os.Pipe()
	assert.OK(t, err)
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	_ = theirs.SetWriteDeadline(time.Now().Add(time.Second))
	for err == nil {
		_, err = theirs.Write(make([]byte, 4096))
	}
	return theirs
}

// TestAcquireEndsWithScript: the lock is held while the script runs, however the script got
// its token, and is released when the script ends or is killed.
func TestAcquireEndsWithScript(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"sh", "bash"} {
		for name, script := range map[string]string{
			"plainly":     `T=$(repolock acquire --shared)`,
			"or exit":     `T=$(repolock acquire --shared || exit 1)`,
			"in a group":  `T=$( (repolock acquire --shared && true) || exit 1)`,
			"by a file":   `repolock acquire --shared >"$XDG_RUNTIME_DIR/t"; T=$(cat "$XDG_RUNTIME_DIR/t")`,
			"by a number": `T=$(exec sh -c "repolock acquire --shared --for-pid $$; true")`,
		} {
			t.Run(shell+" "+name, func(t *testing.T) {
				t.Parallel()
				d := newDesk(t)
				cmd := d.command(shell, "-c", script+`; repolock check "$T"; echo; read end; repolock check "$T"; echo code $?; read kill`)
				in, err := cmd.StdinPipe()
				assert.OK(t, err)
				out, err := cmd.StdoutPipe()
				assert.OK(t, err)
				cmd.Stderr = os.Stderr
				assert.OK(t, cmd.Start())
				lines := bufio.NewReader(out)
				read := func(want string) {
					t.Helper()
					for line := ""; !strings.Contains(line, want); {
						if line, err = lines.ReadString('\n'); err != nil {
							t.Fatalf("%q, want %q", line, want)
						}
					}
				}
				read("is held until")
				time.Sleep(2500 * time.Millisecond) // a keeper looks each second whether its process still exists
				fmt.Fprintln(in, "go on")
				read("code 0\n")
				kill(cmd)
				d.free()
			})
		}
	}
}

// TestKeeperIsApart: a keeper has a session of its own, ignores the terminal's signals, and
// keeps no file of its starter open.
func TestKeeperIsApart(t *testing.T) {
	d := newDesk(t)
	ours, theirs, err := os.Pipe()
	assert.OK(t, err)
	cmd := d.command("repolock", "acquire", "--shared", "--for-pid", fmt.Sprint(os.Getpid()))
	cmd.ExtraFiles = []*os.File{theirs, theirs}
	token, err := cmd.Output() // returns once no process has its stdout open
	theirs.Close()
	assert.OK(t, err)
	_ = ours.SetReadDeadline(time.Now().Add(hang))
	_, err = ours.Read(make([]byte, 1))
	assert.That(t, err == io.EOF, "a file is still open: %v", err)
	pid := d.holders()[0]
	sid, err := unix.Getsid(pid)
	assert.That(t, err == nil && sid == pid, "its session is %d, %v, and it is %d", sid, err, pid)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		assert.OK(t, syscall.Kill(pid, sig))
	}
	d.want(0, "is held", "check", strings.TrimSpace(string(token)))
	assert.OK(t, syscall.Kill(pid, syscall.SIGTERM))
	d.free()
	d.want(fault.ExitLost, "no keeper any more", "check", strings.TrimSpace(string(token)))
}

// TestAcquireInterrupted: an acquire that is ended while it waits leaves nothing behind, whether it
// is ended by a signal or by the end of its script.
func TestAcquireInterrupted(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			d := newDesk(t)
			h := d.acquire("--shared")
			cmd, stdout, stderr := d.waits()
			assert.OK(t, cmd.Process.Signal(sig))
			err := cmd.Wait()
			if sig != syscall.SIGKILL {
				code := exitOf(t, err)
				assert.That(t, code == fault.ExitSignal+int(sig) && strings.Contains(stderr.String(), `"message":"`+sig.String()) && stdout.Len() == 0,
					"exit code %d\n%s%s", code, stdout, stderr)
				left := d.holders()
				assert.That(t, len(left) == 1, "it has ended, and left %v", left)
			}
			until(t, "nothing of it is left", func() bool { return len(d.holders()) == 1 })
			d.want(0, "", "release", h.Token)
			d.free()
		})
	}
	t.Run("the script ends", func(t *testing.T) {
		d := newDesk(t)
		h := d.acquire("--shared")
		script := d.script()
		cmd, _, stderr := d.waits(forScript(script))
		kill(script)
		code := exitOf(t, cmd.Wait())
		assert.That(t, code == fault.ExitUnavailable && strings.Contains(stderr.String(), "the process that it was for has ended"),
			"exit code %d\n%s", code, stderr)
		d.want(0, "", "release", h.Token)
		d.free()
	})
}

// TestAcquireUnheard: a lock is released if acquire can't print its token.
func TestAcquireUnheard(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	cmd := d.acquiring("--shared")
	cmd.Stdout = fullPipe(t)
	assert.OK(t, cmd.Start())
	until(t, "it is held", func() bool { return len(d.holders()) == 1 })
	kill(cmd)
	d.free()
}

// TestLockEndsWithTheWorker: a lock that a forked worker acquires ends with the worker, not
// with the program that forked it.
func TestLockEndsWithTheWorker(t *testing.T) {
	perl, err := exec.LookPath("perl")
	if err != nil {
		t.Skip(err)
	}
	d := newDesk(t)
	cmd := d.command(perl, "-e", `$| = 1; my $p = fork; if (!$p) { print qx(repolock --json acquire --shared), "\n.\n"; sleep 1000 } sleep 1000`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	assert.OK(t, err)
	assert.OK(t, cmd.Start())
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() }()
	var text string
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "."; {
		text += lines.Text()
	}
	var h session.Holding
	assert.OK(t, json.Unmarshal([]byte(text), &h))
	assert.Need(t, h.ForPID != cmd.Process.Pid, "it is for the program, %d", h.ForPID)
	time.Sleep(1500 * time.Millisecond)
	d.want(0, "is held", "check", h.Token)
	assert.OK(t, syscall.Kill(h.ForPID, syscall.SIGKILL))
	d.free()
}

// TestBrokenLog: a keeper runs on when the pipe of its log has lost its reader or is full. It releases its lock, and
// kills its script when the lock is lost.
func TestBrokenLog(t *testing.T) {
	ours, closed, err := os.Pipe()
	assert.OK(t, err)
	ours.Close()
	for name, log := range map[string]*os.File{"closed": closed, "full": fullPipe(t)} {
		for _, broken := range []bool{false, runtime.GOOS == "linux"} {
			d := newDesk(t)
			script := d.script()
			flags := []string{"--exclusive", "--ttl", "1h", "--log", "/dev/fd/3", forScript(script)}
			if broken {
				flags = append(flags, "--on-lost", "kill")
			}
			cmd := d.acquiring(flags...)
			cmd.ExtraFiles = []*os.File{log}
			assert.OK(t, cmd.Run())
			if broken {
				d.repolock("break-lock", "--yes")
				until(t, name+": the script is killed", func() bool {
					sockets, _ := os.ReadDir(filepath.Join(d.run, "repolock"))
					for _, s := range sockets {
						d.repolock("check", s.Name()) // its keeper looks
					}
					return states.Of(script.Process.Pid) == "Z"
				})
			}
			kill(script)
			d.free()
		}
	}
}

// TestClosedStderrKillsNoSession: a repolock around a command runs on when its stderr has lost
// its reader.
func TestClosedStderrKillsNoSession(t *testing.T) {
	d := newDesk(t)
	ours, theirs, err := os.Pipe()
	assert.OK(t, err)
	defer theirs.Close()
	cmd := d.command("repolock", "-v", "prune", "--", "sh", "-c", "kill -PIPE $$")
	cmd.Stderr = theirs
	ours.Close()
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGPIPE) { // as the command did
		t.Errorf("it ended with %v", err)
	}
	d.free()
}
