//go:build programs

package pgtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/freeport"
)

// Bouncer starts pgbouncer in front of a server, in a mode (session, transaction, statement) and
// with settings as "name=value". It returns its address. It ends with the test.
func Bouncer(t testing.TB, s *Server, mode string, settings ...string) string {
	t.Helper()
	dir, err := open("pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port, err := freeport.Free()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\nlisten_addr=127.0.0.1\n"+
		"listen_port=%d\nunix_socket_dir=\nauth_type=any\npool_mode=%s\n", s.Port(), port, mode)
	for _, setting := range settings {
		text += setting + "\n"
	}
	path := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	process := command("pgbouncer", path)
	process.Stdout, process.Stderr = &log, &log
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for end := time.Now().Add(hang); !listens(address); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("pgbouncer isn't ready after %v:\n%s", hang, log.String())
		}
	}
	return address
}

// Busy makes the clients of a pooler run statements until stop is called.
func Busy(t testing.TB, s *Server, address string) (stop func()) {
	t.Helper()
	script := filepath.Join(s.dir, "busy.sql")
	if err := os.WriteFile(script, []byte("select 1;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(address, ":")
	bench := command(program("pgbench"), "-n", "-h", host, "-p", port, "-U", "postgres",
		"-T", "3600", "-c", "4", "-f", script, "postgres")
	if err := bench.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := bench.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("pgbench has ended: %v", err)
		}
		_ = bench.Process.Kill()
		_ = bench.Wait()
	}
}
