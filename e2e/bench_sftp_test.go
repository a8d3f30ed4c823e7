//go:build linux && programs

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
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
	took := func(r row, do func() error) {
		began := time.Now()
		assert.OK(b, do())
		d := time.Since(began)
		r.took("ms", d)
		r.add("in round trips", float64(d)/float64(trip))
	}
	ctx := context.Background()
	var s store.Store
	const n = 7
	rows := inTurns(n, subject{"connection", func(r row) {
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
			subject{mode.name + ", acquire", func(r row) { took(r, func() (err error) { k, err = mode.acquire(ctx, "benchmark"); return err }) }},
			subject{mode.name + ", look", func(r row) { took(r, func() error { return k.Check(ctx) }) }},
			subject{mode.name + ", refresh", func(r row) { took(r, func() error { return k.Refresh(ctx) }) }},
			subject{mode.name + ", release", func(r row) { took(r, func() error { return k.Release(ctx) }) }})...)
	}
	fmt.Print(markdown("a lock over ssh", rows))
}
