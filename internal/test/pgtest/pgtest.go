//go:build programs

// Package pgtest starts Debian's PostgreSQL and pgbouncer for tests. Tests that use it carry the
// build tag programs, and fail if there is none.
package pgtest

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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/procstat"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/server"
)

// Server is a PostgreSQL server for one test. Its user postgres needs no password.
type Server struct {
	t        testing.TB
	dir      string
	port     int
	settings []string
	process  *server.Process // nil while it is down
}

// New starts a server with settings as "name=value" added. The server ends with the test.
func New(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := prepare(t, settings)
	data(t, s.data())
	s.Start()
	return s
}

func prepare(t testing.TB, settings []string) *Server {
	t.Helper()
	dir, err := open("pg-")
	assert.OK(t, err)
	s := &Server{t: t, dir: dir, port: server.Port(t), settings: settings}
	t.Cleanup(func() {
		s.Kill()
		_ = os.RemoveAll(dir)
	})
	return s
}

// Never is a setting of a standby that refuses all connections.
const Never = "hot_standby=off"

// Standby starts a server that follows this one, which must be up.
func (s *Server) Standby(settings ...string) *Server {
	s.t.Helper()
	standby := prepare(s.t, settings)
	backup := command(program("pg_basebackup"), "--pgdata", standby.data(), "--host", s.Socket(),
		"--port", fmt.Sprint(s.port), "--username=postgres", "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	assert.Output(s.t, backup)
	standby.Start()
	return standby
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Port is the port of 127.0.0.1, and the number in the socket's name. It never changes.
func (s *Server) Port() int { return s.port }

// Address is 127.0.0.1:PORT.
func (s *Server) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Socket is the directory of the Unix socket.
func (s *Server) Socket() string { return s.dir }

// Hosts replaces pg_hba.conf, the rules for connections, and waits until the server has read it. The server
// must run, and accept the user postgres on its socket.
func (s *Server) Hosts(lines ...string) {
	s.t.Helper()
	text := strings.Join(lines, "\n") + "\n"
	assert.OK(s.t, os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(text), 0o600))
	const loaded = "select pg_conf_load_time()"
	before := s.PSQL(loaded)
	signal([]int{s.process.Pid()}, syscall.SIGHUP)
	for end := time.Now().Add(assert.Hang); s.PSQL(loaded) == before; time.Sleep(20 * time.Millisecond) {
		assert.Need(s.t, time.Now().Before(end), "PostgreSQL doesn't read pg_hba.conf")
	}
}

// Start starts it, on the same port and the same data, and waits until it is ready.
func (s *Server) Start() {
	s.t.Helper()
	args := []string{"-D", s.data(), "-c", "listen_addresses=127.0.0.1", "-c", fmt.Sprintf("port=%d", s.port),
		"-c", "unix_socket_directories=" + s.dir, "-c", "fsync=off", "-c", "max_connections=300",
		"-c", "shared_buffers=8MB", "-c", "autovacuum=off"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	for end := time.Now().Add(assert.Hang); s.process == nil; {
		var err error
		s.process, err = server.Start(command(program("postgres"), args...), s.ready)
		// After a crash a process of the old server can still have its shared memory.
		again := err != nil && strings.Contains(err.Error(), "shared memory") && time.Now().Before(end)
		assert.Need(s.t, err == nil || again, "%v", err)
	}
}

func (s *Server) ready() bool {
	out, err := s.psql("select 1")
	return err == nil || slices.Contains(s.settings, Never) && strings.Contains(out, "not accepting connections")
}

// Kill ends all processes of the server as a crash of the machine does.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Shutdown ends the server in order: it ends each session with a reason.
func (s *Server) Shutdown() { s.end(syscall.SIGINT) }

// Restart is Shutdown and Start.
func (s *Server) Restart() {
	s.t.Helper()
	s.Shutdown()
	s.Start()
}

func (s *Server) end(sig syscall.Signal) {
	if s.process != nil && sig == syscall.SIGKILL {
		s.Stop() // lest processes begin meanwhile
		signal(tree(s.process.Pid())[1:], sig)
	}
	s.process.End(sig)
	s.process = nil
}

// Stop stops all processes of the server, Cont makes them go on. A stopped server accepts
// connections, because the kernel does.
func (s *Server) Stop() {
	all := []int{s.process.Pid()}
	signal(all, syscall.SIGSTOP)
	signal(tree(s.process.Pid()), syscall.SIGSTOP)
}

// Cont makes a stopped server go on.
func (s *Server) Cont() { signal(tree(s.process.Pid()), syscall.SIGCONT) }

// PSQL runs a command of SQL by psql, in the database postgres, and returns its rows.
func (s *Server) PSQL(sql string) string {
	s.t.Helper()
	out, err := s.psql(sql)
	assert.Need(s.t, err == nil, "psql: %v\n%s", err, out)
	return out
}

func (s *Server) psql(sql string) (string, error) {
	out, err := s.Client("-c", sql).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Client returns a psql that isn't started yet.
func (s *Server) Client(args ...string) *exec.Cmd {
	all := []string{"-XqAt", "-v", "ON_ERROR_STOP=1", "-h", s.Socket(), "-p", fmt.Sprint(s.port), "-U", "postgres"}
	return command(program("psql"), append(all, args...)...)
}

// listens reports whether something listens at an address of TCP.
func listens(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// template is the data directory that each server gets a copy of: initdb takes seconds.
var template struct {
	once sync.Once
	dir  string
	err  error
}

// Main runs the tests of a package, and removes the files that servers share.
func Main(m *testing.M) {
	code := m.Run()
	Clean()
	os.Exit(code)
}

// Clean removes the files that servers share, for packages that don't run their tests by Main. No server can
// be started afterwards.
func Clean() {
	if template.dir != "" {
		_ = os.RemoveAll(template.dir)
	}
}

// data fills an empty directory with a new cluster of databases.
func data(t testing.TB, dir string) {
	t.Helper()
	template.once.Do(initialize)
	assert.OK(t, template.err)
	assert.Output(t, command("cp", "-a", filepath.Join(template.dir, "data"), dir))
}

func initialize() {
	template.dir, template.err = open("repolock-pgtest-")
	if template.err != nil {
		return
	}
	initdb := command(program("initdb"), "--pgdata", filepath.Join(template.dir, "data"), "--username=postgres",
		"--auth=trust", "--no-sync", "--wal-segsize=1", "--locale=C.UTF-8", "--encoding=UTF8")
	if out, err := initdb.CombinedOutput(); err != nil {
		template.err = fmt.Errorf("initdb: %w\n%s", err, out)
	}
}

// open makes a directory in which the servers' user can write. Its path is short enough for the
// name of a socket.
func open(pattern string) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	return dir, err
}

// program returns the path of a program of the newest PostgreSQL.
func program(name string) string {
	found, _ := filepath.Glob(filepath.Join("/usr/lib/postgresql/*/bin", name))
	if len(found) == 0 {
		return name // an error of exec then names it
	}
	return slices.MaxFunc(found, func(a, b string) int { return release(a) - release(b) })
}

func release(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// command returns a command that runs as the user postgres if we are root, whom the servers
// refuse, and that ends with us.
func command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		return c
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		c.Err = err
		return c
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return c
}

// tree returns a process and its children. A server runs each session in a child, which has its own process
// group.
func tree(pid int) []int {
	all := []int{pid}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if s, _ := procstat.Read(e.Name()); err == nil && s.Parent == pid {
			all = append(all, child)
		}
	}
	return all
}

func signal(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}

// Bouncer starts pgbouncer in front of a server, in a mode (session, transaction, statement) and
// with settings as "name=value". It returns its address. It ends with the test.
func Bouncer(t testing.TB, s *Server, mode string, settings ...string) string {
	t.Helper()
	dir, err := open("pgbouncer-")
	assert.OK(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port := server.Port(t)
	text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\nlisten_addr=127.0.0.1\n"+
		"listen_port=%d\nunix_socket_dir=\nauth_type=any\npool_mode=%s\n", s.Port(), port, mode)
	for _, setting := range settings {
		text += setting + "\n"
	}
	path := filepath.Join(dir, "pgbouncer.ini")
	assert.OK(t, os.WriteFile(path, []byte(text), 0o644))
	address := fmt.Sprintf("127.0.0.1:%d", port)
	process, err := server.Start(command("pgbouncer", path), func() bool { return listens(address) })
	assert.OK(t, err)
	t.Cleanup(func() { process.End(os.Kill) })
	return address
}

// Busy makes the clients of a pooler run statements until stop is called.
func Busy(t testing.TB, s *Server, address string) (stop func()) {
	t.Helper()
	script := filepath.Join(s.dir, "busy.sql")
	assert.OK(t, os.WriteFile(script, []byte("select 1;\n"), 0o644))
	host, port, _ := strings.Cut(address, ":")
	bench := command(program("pgbench"), "-n", "-h", host, "-p", port, "-U", "postgres",
		"-T", "3600", "-c", "4", "-f", script, "postgres")
	assert.OK(t, bench.Start())
	return func() {
		t.Helper()
		if err := bench.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("pgbench has ended: %v", err)
		}
		_ = bench.Process.Kill()
		_ = bench.Wait()
	}
}
