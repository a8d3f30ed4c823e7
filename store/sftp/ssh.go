package sftp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/child"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
)

// sshTo returns the command that speaks SFTP with a host. The user's own configuration of ssh applies, except that
//
//   - ssh never asks a question (BatchMode), because there might be no user at the terminal;
//   - ssh notices within 15 s that the connection is dead, in time for a lock of 60 s;
//   - ssh uses the connection of a ControlMaster, but isn't one: the next program's connection would end with
//     ours;
//   - ssh shows no greeting of the server (LogLevel), because it could be taken for a failure.
func sshTo(host, user, port string) []string {
	command := []string{
		"ssh", "-oBatchMode=yes", "-oConnectTimeout=15", "-oServerAliveInterval=5", "-oServerAliveCountMax=3",
		"-oControlMaster=no", "-oClearAllForwardings=yes", "-oRemoteCommand=none", "-oRequestTTY=no", "-oLogLevel=ERROR",
	}
	if user != "" {
		command = append(command, "-l", user)
	}
	if port != "" {
		command = append(command, "-p", port)
	}
	return append(command, "-s", "--", host, "sftp")
}

// connect starts the command of a target, and SFTP on its stdin and stdout.
func connect(ctx context.Context, t target) (*conn, error) {
	p, err := startProcess(t.command)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fault.Advise(fault.New(store.ErrConfig, "%s isn't in PATH", t.command[0]), "install OpenSSH's client")
	case err != nil:
		return nil, fault.New(store.ErrConfig, "%s can't be started: %w", t.command[0], err)
	}
	c, err := start(ctx, p, t, p.why)
	if c != nil {
		p.words.forget() // forget the words of the login
	}
	switch {
	case err == nil, c != nil, fault.Of(err) != fault.Unknown && !errors.Is(err, errEnded):
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = store.Unreachable(fmt.Errorf("there was no ssh connection within %s", fault.Within(dialTimeout)))
	case errors.Is(err, errEnded): // ssh has ended, and has written no reason
		err = mute(t.command[0])
	}
	return c, err
}

// mute returns the error of a command that has ended before SFTP began, and has written no reason. If the server's
// Subsystem or ForceCommand names a program, the server doesn't send the messages of that program.
func mute(name string) error {
	advice := "the server's own log says why: look at its Subsystem sftp, ChrootDirectory and ForceCommand"
	if name == "sh" {
		name, advice = "the program of command=", "correct command= in the URL: it must speak SFTP on its stdin and stdout"
	}
	return fault.Advise(fmt.Errorf("%s has ended before SFTP began, and hasn't said why", name), advice)
}

// process is a command that speaks SFTP on its stdin and stdout. Close ends it.
type process struct {
	*os.Process
	in, out *os.File
	words   words
	ended   chan struct{} // closed when the process has ended
	code    int           // exit code, valid once ended is closed; -1 after a signal
}

// startProcess starts a command in its own session, because Ctrl-C at the terminal must not end the connection before
// the lock is released. If this process is killed, the kernel ends the command.
func startProcess(command []string) (*process, error) {
	in, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	theirs, out, err := os.Pipe()
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer out.Close()
	p := &process{in: ours, out: theirs, ended: make(chan struct{})}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &p.words
	cmd.SysProcAttr = ownSession()
	cmd.WaitDelay = time.Second // a process that ssh has started might still have its stderr open
	started := make(chan error)
	go func() {
		// When this thread ends, the kernel treats that as the end of this process. So the thread must not end with the
		// goroutine: the kernel would also kill other children that the thread has started.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_, err := child.Start(func() (int, error) {
			if err := cmd.Start(); err != nil {
				return 0, err
			}
			return cmd.Process.Pid, nil
		})
		started <- err
		if err == nil {
			_ = cmd.Wait()
			child.Disown(cmd.Process.Pid)
			p.code = cmd.ProcessState.ExitCode()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		ours.Close()
		theirs.Close()
		return nil, err
	}
	p.Process = cmd.Process
	return p, nil
}

func (p *process) Read(b []byte) (int, error)  { return p.out.Read(b) }
func (p *process) Write(b []byte) (int, error) { return p.in.Write(b) }

// Close ends the process, even if its connection hangs, or if it ignores the signal.
func (p *process) Close() error {
	p.in.Close()
	p.out.Close()
	time.AfterFunc(2*time.Second, func() { _ = p.Kill() })
	if p.Signal(syscall.SIGTERM) != nil { // Windows has no such signal
		_ = p.Kill()
	}
	return nil
}

// words keeps the end of the text that a process writes to stderr.
type words struct {
	mu   sync.Mutex
	tail []byte
}

const maxWords = 4096 // bytes

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail = append(w.tail, b...)
	w.tail = w.tail[max(len(w.tail)-maxWords, 0):]
	return len(b), nil
}

func (w *words) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail = nil
}

func (w *words) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.FieldsFunc(string(w.tail), func(r rune) bool { return r == '\n' || r == '\r' })
}

const (
	changed = "the server has another host key than before, or another server has answered: find out which, and then run ssh-keygen -R HOST"
	keyless = "the server accepts only passwords, and repolock can't type one: allow PubkeyAuthentication there"
)

// reasons are ssh's messages about failures of a connection, each with its class. An ellipsis stands for any text. A
// nil class means a temporary failure: the server was reached, and refuses a session for now. The texts for
// store.ErrUnreachable are long, so that a program on the server is unlikely to print them too.
var reasons = []struct {
	words  string
	class  error
	advice string
}{
	{"has changed and you have requested strict checking", store.ErrConfig, changed},
	{"REMOTE HOST IDENTIFICATION HAS CHANGED", store.ErrConfig, changed},
	{"host key is known for", store.ErrConfig, "connect once by hand with ssh, as the same user, and compare the host key"},
	{"Host key verification failed", store.ErrConfig, "connect once by hand with ssh, as the same user, and compare the host key"},
	{"Permission denied (password", store.ErrCredentials, keyless},
	{"Permission denied (keyboard-interactive", store.ErrCredentials, keyless},
	{"Permission denied", store.ErrCredentials, "ssh must work without a question: use a key without a passphrase, or one in ssh-agent, and put it into authorized_keys on the server"},
	{"Too many authentication failures", store.ErrCredentials, "name the key in ~/.ssh/config, with IdentitiesOnly yes"},
	{"subsystem request failed", store.ErrConfig, "the server's sshd_config has no Subsystem sftp"},
	{": not found", store.ErrConfig, "correct command= in the URL"},                                       // of a shell
	{"ssh: Could not resolve hostname …: Temporary failure in name resolution", store.ErrUnreachable, ""}, // of glibc
	{"ssh: Could not resolve hostname …: Try again", store.ErrUnreachable, ""},                            // of musl
	{"Could not resolve hostname", store.ErrNoHost, "check the host in the URL, or in ~/.ssh/config, and that this machine's DNS resolves it"},
	{"ssh: connect to host ", store.ErrUnreachable, ""},
	{"open failed: connect failed: ", store.ErrUnreachable, ""}, // a jump host's
	{"Connection timed out during banner exchange", store.ErrUnreachable, ""},
	{" not responding.", store.ErrUnreachable, ""},
	{"Bad configuration option", store.ErrConfig, ""},
	{"Bad owner or permissions on", store.ErrConfig, ""},
	{" line ", store.ErrConfig, ""}, // of ~/.ssh/config
	{"open failed", nil, "the server allows fewer sessions on one connection (MaxSessions)"},
	{"Session open refused by peer", nil, "the server allows fewer sessions on one connection (MaxSessions)"},
	{"kex_exchange_identification", nil, "the server has closed the connection before the login: too many logins at once (MaxStartups), or it bans this address"},
	{"Connection reset by ", store.ErrUnreachable, ""},
	{"Connection closed", nil, "the server has ended the login; its own log says why"},
	{"client_loop: ", store.ErrUnreachable, ""},
}

// matches reports whether a line contains words, in which an ellipsis stands for any text.
func matches(line, words string) bool {
	begin, end, _ := strings.Cut(words, "…")
	_, rest, ok := strings.Cut(line, begin)
	return ok && strings.Contains(rest, end)
}

// why waits up to 2 s for the end of the process, and returns the reason that it has written to stderr, or nil. ssh
// ends with 255 after a failure of its own. With another code, a program on the server has ended, so the server was
// reached.
func (p *process) why(ctx context.Context) error {
	unreached := false
	select {
	case <-p.ended:
		unreached = p.code == 255
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
	lines := p.words.lines()
	for _, r := range reasons {
		for _, line := range lines {
			if !matches(line, r.words) {
				continue
			}
			if r.class == store.ErrUnreachable && !unreached {
				r.class = nil
			}
			said := errors.New("ssh: " + text.Line(strings.Trim(strings.TrimPrefix(line, "ssh: "), "@ ")))
			return fault.With(said, func(e *fault.Error) { e.Class, e.Advice = r.class, r.advice })
		}
	}
	if n := len(lines); n > 0 {
		return errors.New("ssh: " + text.Line(lines[n-1]))
	}
	return nil
}
