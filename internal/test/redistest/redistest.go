//go:build programs

// Package redistest starts Debian's redis-server for tests that need a real one.
package redistest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/server"
)

// Server is a redis-server of one test. It isn't safe for concurrent use.
type Server struct {
	t       testing.TB
	port    int
	dir     string
	args    []string
	process *server.Process // nil while it is killed
}

// New starts a server on a free port of 127.0.0.1, without persistence. args are appended to its
// arguments: "--requirepass", "secret". The server ends with the test.
func New(t testing.TB, args ...string) *Server {
	t.Helper()
	if slices.Contains(args, "--cluster-enabled") { // which takes port+10000 otherwise, free or not
		args = append(slices.Clone(args), "--cluster-port", strconv.Itoa(server.Port(t)))
	}
	s := &Server{t: t, port: server.Port(t), dir: t.TempDir(), args: args}
	t.Cleanup(s.Kill)
	s.Restart()
	return s
}

// Addr is the host and port of the server. They stay the same when it is restarted.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Restart starts the server anew, killing it if it runs. Without persistence its memory is empty.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	args := append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", "",
		"--daemonize", "no", "--save", "", "--appendonly", "no", "--enable-debug-command", "yes",
	}, s.args...)
	var err error
	s.process, err = server.Start(exec.Command("redis-server", args...), s.answers)
	assert.OK(s.t, err)
}

// answers reports whether the server answers, with whatever but that it is loading.
func (s *Server) answers() bool {
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return false
	}
	defer c.Close()
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && !strings.HasPrefix(answer, "-LOADING")
}

// Kill ends the server with SIGKILL, even if it is stopped.
func (s *Server) Kill() {
	s.process.End(os.Kill)
	s.process = nil
}

// CLI runs redis-cli and returns its output without the last line feed. It fails the test if
// redis-cli fails; an error of the server is output.
func (s *Server) CLI(args ...string) string {
	s.t.Helper()
	cmd := exec.Command("redis-cli", append([]string{"-p", strconv.Itoa(s.port)}, args...)...)
	return strings.TrimSuffix(assert.Output(s.t, cmd), "\n")
}

// Stop stops the server with SIGSTOP. The kernel still accepts connections for it.
func (s *Server) Stop() {
	s.t.Helper()
	assert.OK(s.t, syscall.Kill(s.process.Pid(), syscall.SIGSTOP))
}

// Cont makes a stopped server go on.
func (s *Server) Cont() {
	s.t.Helper()
	assert.OK(s.t, syscall.Kill(s.process.Pid(), syscall.SIGCONT))
}
