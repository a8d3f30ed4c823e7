//go:build linux && programs

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/sshd"
	"github.com/repolock/repolock/internal/test/tcpproxy"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

// BenchmarkSFTP measures a lock over ssh, with 80 ms for each round trip, counts the round trips on the wire, and prints
// the tables of docs/evidence/stores.md. With -short it measures each step once.
func BenchmarkSFTP(b *testing.B) {
	const trip = 80 * time.Millisecond
	server := sshd.Apart(b)
	proxy := tcpproxy.New(b, server.Address())
	proxy.Lag(trip / 2)
	_, raw, err := net.SplitHostPort(proxy.Address())
	assert.OK(b, err)
	port, err := strconv.Atoi(raw)
	assert.OK(b, err)
	took := func(r row, do func() error) {
		for tries := 1; ; tries++ {
			trips, began := proxy.Trips(), time.Now()
			if err := do(); err != nil && tries < 5 {
				continue // a busy machine can take too long for a login
			} else {
				assert.OK(b, err)
			}
			r.took("ms", time.Since(began))
			r.add("round trips", float64(proxy.Trips()-trips))
			return
		}
	}
	n := 7
	if testing.Short() {
		n = 1
	}
	fmt.Print(markdown("a lock over ssh", stepsOverSSH(b, n, server, sshd.At(sshd.Me(), port, b.TempDir()), took)))
	fmt.Print(markdown("a whole run over ssh", wholeRuns(b, n, server, port, took)))
}

// stepsOverSSH measures the steps of a lock's life on one connection.
func stepsOverSSH(b *testing.B, n int, server *sshd.Server, url string, took func(row, func() error)) []row {
	b.Setenv("PATH", server.Bin()+":/usr/bin:/bin")
	ctx := context.Background()
	var s store.Store
	rows := inTurns(n, subject{"a new connection", func(r row) {
		if s != nil {
			assert.OK(b, s.(io.Closer).Close())
		}
		took(r, func() (err error) {
			if s, err = open.Store(ctx, url); err == nil {
				_ = s.Properties()
			}
			return err
		})
	}})
	l, err := replock.New(s, replock.Options{Beside: replock.BesideNobody})
	assert.OK(b, err)
	for _, mode := range []struct {
		name    string
		acquire func(context.Context, string, ...replock.AcquireOption) (*replock.Lock, error)
	}{{"shared", l.TryShared}, {"exclusive", l.TryExclusive}} {
		k, err := mode.acquire(ctx, "benchmark") // the first one also makes directories
		assert.OK(b, err)
		assert.OK(b, k.Release(ctx))
		rows = append(rows, inTurns(n,
			subject{"acquire, " + mode.name, func(r row) { took(r, func() (err error) { k, err = mode.acquire(ctx, "benchmark"); return err }) }},
			subject{"a look, " + mode.name, func(r row) { took(r, func() error { return k.Check(ctx) }) }},
			subject{"a refresh, " + mode.name, func(r row) { took(r, func() error { return k.Refresh(ctx) }) }},
			subject{"release, " + mode.name, func(r row) { took(r, func() error { return k.Release(ctx) }) }})...)
	}
	assert.OK(b, s.(io.Closer).Close())
	return rows
}

// wholeRuns measures processes of a user who has locked the repository before: from the start of ssh to the end of
// repolock, without and with a ControlMaster.
func wholeRuns(b *testing.B, n int, server *sshd.Server, port int, took func(row, func() error)) []row {
	sockets, err := os.MkdirTemp("/tmp", "ssh-") // a socket's path must be short
	assert.OK(b, err)
	b.Cleanup(func() { os.RemoveAll(sockets) })
	ssh := server.Client(b, "ControlPath "+sockets+"/%C")
	home := b.TempDir()
	url := sshd.At(sshd.Me(), port, repository(b))
	runs := func(args ...string) func(row) {
		return func(r row) {
			took(r, func() error {
				cmd := exec.Command(filepath.Join(bin, "repolock"), append([]string{"-q", "-r", url}, args...)...)
				cmd.Env = append(os.Environ(), "PATH="+ssh+":/usr/bin:/bin", "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+home, "XDG_CACHE_HOME="+home)
				out, err := cmd.CombinedOutput()
				if err != nil {
					err = fmt.Errorf("%w: %s", err, out)
				}
				return err
			})
		}
	}
	shared, exclusive, status := runs("run", "--shared", "--", "true"), runs("run", "--exclusive", "--", "true"), runs("status")
	shared(newRow("the first run"))
	exclusive(newRow("the first run"))
	rows := inTurns(n, subject{"run --shared -- true", shared}, subject{"run --exclusive -- true", exclusive}, subject{"status", status})
	master := exec.Command(filepath.Join(ssh, "ssh"), "-M", "-N", "-p", strconv.Itoa(port), "127.0.0.1")
	assert.OK(b, master.Start())
	b.Cleanup(func() { _ = master.Process.Kill(); _ = master.Wait() })
	for is, _ := filepath.Glob(sockets + "/*"); len(is) == 0; is, _ = filepath.Glob(sockets + "/*") {
		time.Sleep(10 * time.Millisecond)
	}
	return append(rows, inTurns(n, subject{"run --shared -- true, with a ControlMaster", shared},
		subject{"run --exclusive -- true, with a ControlMaster", exclusive}, subject{"status, with a ControlMaster", status})...)
}
