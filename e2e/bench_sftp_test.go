//go:build linux && programs

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
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

// BenchmarkSFTP measures a lock over ssh, with 80 ms for each round trip, and prints the table of docs/evidence/stores.md.
func BenchmarkSFTP(b *testing.B) {
	const trip = 80 * time.Millisecond
	server := sshd.Apart(b)
	b.Setenv("PATH", server.Bin()+":/usr/bin:/bin")
	proxy := tcpproxy.New(b, server.Address())
	proxy.Lag(trip / 2)
	_, raw, err := net.SplitHostPort(proxy.Address())
	assert.OK(b, err)
	port, err := strconv.Atoi(raw)
	assert.OK(b, err)
	url := sshd.At(sshd.Me(), port, b.TempDir())
	row := func(what string, times ...time.Duration) {
		slices.Sort(times)
		median := times[len(times)/2]
		fmt.Printf("| %s | %d | %.1f |\n", what, median.Milliseconds(), float64(median)/float64(trip))
	}
	took := func(do func() error) time.Duration {
		began := time.Now()
		assert.OK(b, do())
		return time.Since(began)
	}
	ctx := context.Background()
	connect := func() (store.Store, error) {
		s, err := open.Store(ctx, url)
		if err == nil {
			_ = s.Properties()
		}
		return s, err
	}
	const n = 7
	var connects []time.Duration
	var s store.Store
	for range n {
		connects = append(connects, took(func() (err error) { s, err = connect(); return err }))
		if len(connects) < n {
			assert.OK(b, s.(io.Closer).Close())
		}
	}
	row("connection", connects...)
	l, err := replock.New(s, replock.Options{})
	assert.OK(b, err)
	for mode, acquire := range map[string]func(context.Context, string, ...replock.AcquireOption) (*replock.Lock, error){"shared": l.TryShared, "exclusive": l.TryExclusive} {
		var acquires, looks, renewals, releases []time.Duration
		for range n + 1 { // the first one also makes directories
			var k *replock.Lock
			acquires = append(acquires, took(func() (err error) { k, err = acquire(ctx, "benchmark"); return err }))
			looks = append(looks, took(func() error { return k.Check(ctx) }))
			renewals = append(renewals, took(func() error { return k.Refresh(ctx) }))
			releases = append(releases, took(func() error { return k.Release(ctx) }))
		}
		row(mode+", acquire", acquires[1:]...)
		row(mode+", look", looks...)
		row(mode+", refresh", renewals...)
		row(mode+", release", releases...)
	}
}
