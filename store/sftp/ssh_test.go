//go:build unix

package sftp

import (
	"bufio"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
)

// says returns the error of a connection whose command prints these lines to stderr, and exits.
func says(t *testing.T, code int, lines ...string) error {
	t.Helper()
	script := fmt.Sprintf("printf '%%s\\n' %s >&2; exit %d", text.Quote(strings.Join(lines, "\n")), code)
	c, err := connect(t.Context(), target{command: []string{"sh", "-c", script}, root: "/"})
	assert.Need(t, c == nil && err != nil, "a connection, %v", err)
	return err
}

// TestReasons: each failure that ssh names has its class, and its line is shown.
func TestReasons(t *testing.T) {
	matched := map[string]bool{}
	for _, c := range []struct {
		class error
		lines []string // the first is shown
	}{
		{store.ErrConfig, []string{"@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @", "Host key verification failed."}},
		{store.ErrConfig, []string{"No ED25519 host key is known for h and you have requested strict checking.", "Host key verification failed."}},
		{store.ErrConfig, []string{"Host key verification failed."}},
		{store.ErrConfig, []string{"Host key for h has changed and you have requested strict checking.", "Host key verification failed."}},
		{store.ErrCredentials, []string{"u@h: Permission denied (password)."}},
		{store.ErrCredentials, []string{"u@h: Permission denied (keyboard-interactive)."}},
		{store.ErrCredentials, []string{"u@h: Permission denied (publickey)."}},
		{store.ErrCredentials, []string{"Received disconnect from 192.0.2.1 port 22:2: Too many authentication failures"}},
		{store.ErrConfig, []string{"subsystem request failed on channel 0"}},
		{store.ErrConfig, []string{"sh: 1: exec: nossh: not found"}},
		{store.ErrNoHost, []string{"ssh: Could not resolve hostname h: Name or service not known"}},
		{store.ErrNoHost, []string{"ssh: Could not resolve hostname h: nodename nor servname provided, or not known"}},
		{store.ErrUnreachable, []string{"ssh: Could not resolve hostname h: Temporary failure in name resolution"}},
		{store.ErrUnreachable, []string{"ssh: Could not resolve hostname h: Try again"}},
		{nil, []string{"Temporary failure in name resolution"}}, // of a program on the server
		{store.ErrUnreachable, []string{"ssh: connect to host h port 22: Connection refused"}},
		{store.ErrUnreachable, []string{"ssh: connect to host h port 22: Connection timed out"}},
		{store.ErrUnreachable, []string{"channel 0: open failed: connect failed: No route to host", "kex_exchange_identification: Connection closed by remote host"}},
		{store.ErrUnreachable, []string{"Connection timed out during banner exchange", "Connection to UNKNOWN port 65535 timed out"}},
		{store.ErrUnreachable, []string{"Timeout, server h not responding."}},
		{store.ErrConfig, []string{"/root/.ssh/config: line 1: Bad configuration option: nix", "/root/.ssh/config: terminating, 1 bad configuration options"}},
		{store.ErrConfig, []string{"Bad owner or permissions on /root/.ssh/config"}},
		{store.ErrConfig, []string{"/root/.ssh/config line 1: keyword x extra arguments: terminating, 1 bad options"}},
		{nil, []string{"channel 0: open failed: administratively prohibited: open failed"}},
		{nil, []string{"mux_client_request_session: session request failed: Session open refused by peer"}},
		{nil, []string{"kex_exchange_identification: read: Connection reset by peer", "Connection reset by 192.0.2.1 port 22"}},
		{store.ErrUnreachable, []string{"Connection reset by 192.0.2.1 port 22"}},
		{nil, []string{"Connection closed by 192.0.2.1 port 22"}},
		{store.ErrUnreachable, []string{"client_loop: send disconnect: Broken pipe"}},
		{nil, []string{"something new"}},
	} {
		err := says(t, 255, c.lines...)
		class := c.class
		if class == nil {
			class = fault.Unknown
		}
		assert.Equal(t, fault.Of(err).Error(), class.Error(), c.lines[0])
		shown := "ssh: " + strings.Trim(strings.TrimPrefix(c.lines[0], "ssh: "), "@ ")
		assert.Equal(t, err.Error(), shown)
		for _, r := range reasons {
			if matches(c.lines[0], r.words) {
				matched[r.words] = true
			}
		}
	}
	for _, r := range reasons {
		assert.That(t, matched[r.words], "no line has %q", r.words)
	}
}

// TestReached: words that a program on the server or its greeting prints don't make the server unreachable.
func TestReached(t *testing.T) {
	for code, line := range map[int]string{
		1:   "ssh: connect to host nas port 22: Connection refused", // ssh on the server has ended, ours passes its code on
		255: "Idle sessions are timed out. Servers not responding: call 555",
		0:   "",
	} {
		err := says(t, code, line)
		assert.That(t, !errors.Is(err, store.ErrUnreachable) && fault.Of(err) == fault.Unknown, "%q: %v", line, err)
	}
	assert.That(t, strings.Contains(strings.Join(sshTo("h", "", ""), " "), "LogLevel=ERROR"), "ssh shows greetings")
}

func TestNoProgram(t *testing.T) {
	_, err := connect(t.Context(), target{command: []string{"no-such-ssh"}, root: "/"})
	assert.Says(t, err, store.ErrConfig, "no-such-ssh isn't in PATH")
}

// TestProcess: the command is in a session of its own. Close ends it, even if it ignores signals, and leaves no
// zombie.
func TestProcess(t *testing.T) {
	for _, script := range []string{"echo; exec sleep 1000", "trap '' TERM; echo; exec sleep 1000"} {
		p, err := startProcess([]string{"sh", "-c", script})
		assert.OK(t, err)
		_, err = bufio.NewReader(p).ReadString('\n')
		assert.OK(t, err)
		sid, err := unix.Getsid(p.Pid)
		assert.OK(t, err)
		assert.Equal(t, sid, p.Pid)
		assert.OK(t, p.Close())
		<-p.ended
		assert.Is(t, unix.Kill(p.Pid, 0), unix.ESRCH)
	}
}

// TestCloseWhileConnecting: Close ends a command that says nothing.
func TestCloseWhileConnecting(t *testing.T) {
	pipe := t.TempDir() + "/pipe"
	assert.OK(t, unix.Mkfifo(pipe, 0o600))
	u := &url.URL{Scheme: "sftp", Host: "h", Path: "/x", RawQuery: url.Values{"command": {"sleep 1000 >" + text.Quote(pipe)}}.Encode()}
	s, err := Open(t.Context(), u)
	assert.OK(t, err)
	in, err := os.Open(pipe) // once the command has begun
	assert.OK(t, err)
	assert.OK(t, s.Close())
	_, err = in.Read(make([]byte, 1)) // until it has ended
	assert.That(t, err != nil, "a byte")
	assert.OK(t, in.Close())
}
