package miniotest

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/freeport"
)

// Server is a MinIO server.
type Server struct {
	t       testing.TB
	address string

	// shared is a server that other tests use, too. A test's own server can be stopped and
	// killed, and has the fields below.
	shared  bool
	dir     string
	env     []string
	log     bytes.Buffer
	process *exec.Cmd // nil while it is stopped
}

// Shared returns the server that all tests use.
func Shared(t testing.TB) *Server {
	t.Helper()
	return &Server{t: t, address: strings.TrimPrefix(Endpoint(t), "http://"), shared: true}
}

// Start starts a server for one test as a process, from the program that e2e/minio.sh has
// built, with these settings added. The server ends with the test.
func Start(t testing.TB, env ...string) *Server {
	t.Helper()
	n, err := freeport.Free()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, address: fmt.Sprintf("127.0.0.1:%d", n), dir: t.TempDir(), env: env}
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// Endpoint is the server's URL. It stays the same.
func (s *Server) Endpoint() string { return "http://" + s.address }

// Start starts it again, on the same port and the same data, and waits until it is
// ready.
func (s *Server) Start() {
	s.t.Helper()
	if s.process != nil || s.shared {
		return
	}
	program := os.Getenv("REPOLOCK_E2E_MINIO_BIN")
	if program == "" {
		s.t.Fatal("REPOLOCK_E2E_MINIO_BIN isn't set: run this by make e2e, which builds MinIO")
	}
	process := exec.Command(program, "server", "--quiet", "--address", s.address, s.dir)
	process.Env = append(os.Environ(),
		"MINIO_ROOT_USER="+User, "MINIO_ROOT_PASSWORD="+Password, "MINIO_BROWSER=off", "MINIO_UPDATE=off")
	process.Env = append(process.Env, s.env...)
	process.Stdout, process.Stderr = &s.log, &s.log
	dieWithUs(process)
	if err := process.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.process = process
	for end := time.Now().Add(hang); !s.ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.Kill()
			s.t.Fatalf("MinIO isn't ready after %v:\n%s", hang, s.log.String())
		}
	}
}

// hang is the longest wait for a server to be ready. Only a hang reaches it, however busy the
// machine is.
const hang = 10 * time.Minute

func (s *Server) ready() bool {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(s.Endpoint() + "/minio/health/ready")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// Stop makes the server end in order: it answers the requests under way.
func (s *Server) Stop() { s.end(os.Interrupt) }

// Kill ends it as a crash does.
func (s *Server) Kill() { s.end(os.Kill) }

func (s *Server) end(sig os.Signal) {
	s.t.Helper()
	if s.shared {
		s.t.Fatal("this server is not the test's own")
	}
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(sig)
	_ = s.process.Wait()
	s.process = nil
}
