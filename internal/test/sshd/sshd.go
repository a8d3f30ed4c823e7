// Package sshd runs OpenSSH's server on a free port of this machine, with keys made for the test. It
// needs the programs of Debian's openssh-server and openssh-client, and nobody's home directory.
package sshd

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/server"
	"github.com/repolock/repolock/internal/text"
)

// Server is a server, or was.
type Server struct {
	*server.Process
	Port int
	dir  string
}

// Start is Apart, and puts its ssh into PATH, for the rest of the test.
func Start(t *testing.T, lines ...string) *Server {
	t.Helper()
	s := Apart(t, lines...)
	t.Setenv("PATH", s.Bin()+":"+os.Getenv("PATH"))
	return s
}

// Apart starts a server, with further lines of its configuration. It also makes an ssh that has a key of its own,
// and knows the server's on each port.
func Apart(t testing.TB, lines ...string) *Server {
	t.Helper()
	return keyed(t).Another(t, lines...)
}

// keyed returns the keys of a server, and an ssh that knows them.
func keyed(t testing.TB) *Server {
	t.Helper()
	s := &Server{dir: t.TempDir()}
	for _, key := range []string{"host", "user"} {
		s.run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.File(key))
	}
	s.Write(t, "authorized", s.read(t, "user.pub"))
	s.Write(t, "known", "* "+s.read(t, "host.pub"))
	s.client(t, s.File("ssh_config"), s.Bin())
	return s
}

// Bin is the directory of the ssh.
func (s *Server) Bin() string { return s.File("bin") }

// Alias lets ssh call the server by a name.
func (s *Server) Alias(t *testing.T, name string) {
	t.Helper()
	s.Write(t, "ssh_config", s.read(t, "ssh_config")+fmt.Sprintf("Host %s\nHostName 127.0.0.1\nPort %d\n", name, s.Port))
}

// Client returns the directory of another ssh. Its configuration begins with these lines: of two lines with one
// word the first holds.
func (s *Server) Client(t testing.TB, lines ...string) (bin string) {
	t.Helper()
	bin = t.TempDir()
	s.client(t, filepath.Join(bin, "ssh_config"), bin, lines...)
	return bin
}

func (s *Server) client(t testing.TB, config, bin string, lines ...string) {
	t.Helper()
	lines = append(lines, "IdentityFile "+s.File("user"), "IdentitiesOnly yes", "IdentityAgent none",
		"UserKnownHostsFile "+s.File("known"), "GlobalKnownHostsFile none", "StrictHostKeyChecking yes", "")
	assert.OK(t, os.WriteFile(config, []byte(strings.Join(lines, "\n")), 0o600))
	ssh, err := exec.LookPath("ssh")
	assert.OK(t, err)
	assert.OK(t, os.MkdirAll(bin, 0o755))
	script := fmt.Sprintf("#!/bin/sh\nexec %s -F %s \"$@\"\n", ssh, text.Quote(config))
	assert.OK(t, os.WriteFile(filepath.Join(bin, "ssh"), []byte(script), 0o755))
}

// Another starts another server with the same keys. Its lines replace ours of the same keywords.
func (s *Server) Another(t testing.TB, lines ...string) *Server {
	t.Helper()
	s = &Server{dir: s.dir, Port: server.Port(t)}
	config := slices.Clone(lines)
	for _, ours := range []string{
		"ListenAddress 127.0.0.1", fmt.Sprint("Port ", s.Port), "HostKey " + s.File("host"), "AuthorizedKeysFile " + s.File("authorized"),
		"PermitRootLogin yes", "StrictModes no", "UsePAM no", "PasswordAuthentication no", "PidFile none", "MaxStartups 100",
		"Subsystem sftp /usr/lib/openssh/sftp-server",
	} {
		keyword, _, _ := strings.Cut(ours, " ")
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, keyword+" ") }) {
			config = append(config, ours)
		}
	}
	s.Write(t, s.config(), strings.Join(config, "\n")+"\n")
	s.Restart(t)
	t.Cleanup(func() { s.End(os.Kill) })
	return s
}

func (s *Server) config() string { return fmt.Sprintf("sshd_config-%d", s.Port) }

// Restart starts the server, which has ended, again on its port.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		assert.OK(t, os.MkdirAll("/run/sshd", 0o755))
	}
	cmd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", s.File(s.config()))
	cmd.WaitDelay = 100 * time.Millisecond // sessions outlive the server, and have its stderr
	s.start(t, cmd)
}

func (s *Server) start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	p, err := server.Start(cmd, func() bool {
		c, err := net.DialTimeout("tcp", s.Address(), time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	assert.OK(t, err)
	s.Process = p
}

// Address is the server's, for a client or a proxy.
func (s *Server) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.Port) }

// URL returns the URL of a directory on this machine, through the server.
func (s *Server) URL(path string) string { return At(Me(), s.Port, path) }

// Me is the name of the user.
func Me() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "root"
}

// At is URL for another user, or another port, such as that of a proxy.
func At(name string, port int, path string) string {
	return fmt.Sprintf("sftp://%s@127.0.0.1:%d/%s", name, port, path)
}

// File returns the path of a file of the server: host, user, known, authorized, ssh_config.
func (s *Server) File(name string) string { return filepath.Join(s.dir, name) }

// Sessions returns the processes that serve SFTP to the server's clients. They outlive the server.
func (s *Server) Sessions(t testing.TB) (pids []int) {
	t.Helper()
	out, _ := exec.Command("pgrep", "-x", "sftp-server").Output()
	for word := range strings.FieldsSeq(string(out)) {
		pid, err := strconv.Atoi(word)
		assert.OK(t, err)
		env, _ := os.ReadFile("/proc/" + word + "/environ") // it might have ended
		ours := func(v string) bool {
			return strings.HasPrefix(v, "SSH_CONNECTION=") && strings.HasSuffix(v, fmt.Sprint(" ", s.Port))
		}
		if slices.ContainsFunc(strings.Split(string(env), "\x00"), ours) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *Server) run(t testing.TB, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	assert.Need(t, err == nil, "%s: %v: %s", name, err, out)
}

func (s *Server) read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(s.File(name))
	assert.OK(t, err)
	return string(text)
}

// Write writes a file of the server.
func (s *Server) Write(t testing.TB, name, text string) {
	t.Helper()
	assert.OK(t, os.WriteFile(s.File(name), []byte(text), 0o600))
}
