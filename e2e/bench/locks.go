//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/cloudsticlock"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// take acquires a lock as a program does that has just begun, and returns a function that
// releases it.
type take func(context.Context) (release func(context.Context) error, err error)

// lock is a protocol: it returns a take on a store.
type lock func(store.Store, replock.Mode) take

// ours is the engine in a new process: it knows nothing of the store yet.
func ours(s store.Store, mode replock.Mode) take {
	return func(ctx context.Context) (func(context.Context) error, error) {
		l, err := replock.New(s, replock.Options{})
		if err != nil {
			return nil, err
		}
		lock := l.Shared
		if mode == replock.Exclusive {
			lock = l.Exclusive
		}
		k, err := lock(ctx, "bench")
		if err != nil {
			return nil, err
		}
		return k.Release, nil
	}
}

// theirs is the original protocol.
func theirs(s store.Store, mode replock.Mode) take {
	return func(ctx context.Context) (func(context.Context) error, error) {
		l := &cloudsticlock.Locker{Store: s, Clock: clock.System{}, Holder: "bench (pid 1)"}
		lock := l.Shared
		if mode == replock.Exclusive {
			lock = l.Exclusive
		}
		k, err := lock(ctx, "bench")
		if err != nil {
			return nil, err
		}
		return k.Release, nil
	}
}

// measure adds one acquire and release to a row. If refused isn't nil, the acquire must fail
// with an error that refused accepts, and there is no release.
func (r *row) measure(ctx context.Context, p *proxy.Proxy, t take, refused func(error) bool) error {
	passed(p)
	start := time.Now()
	release, err := t(ctx)
	took := time.Since(start)
	switch {
	case err == nil && refused != nil:
		return fmt.Errorf("%s: the lock was granted", r.name)
	case err != nil && (refused == nil || !refused(err)):
		return fmt.Errorf("%s: %w", r.name, err)
	}
	r.n++
	r.count(0, passed(p))
	if err != nil {
		r.took = append(r.took, took)
		return nil
	}
	start = time.Now()
	if err := release(ctx); err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	r.lasted(took, time.Since(start))
	r.count(1, passed(p))
	return nil
}

// lasted notes the times of an acquire and of its release.
func (r *row) lasted(took, released time.Duration) {
	r.took, r.released, r.both = append(r.took, took), append(r.released, released), append(r.both, took+released)
}

// count notes the requests of an acquire, 0, or a release, 1.
func (r *row) count(which int, l proxy.Log) {
	r.trips[which] = append(r.trips[which], l.Trips())
	r.requests[which] = append(r.requests[which], len(l))
}

// passed returns the requests that have passed the proxy since the last call.
func passed(p *proxy.Proxy) proxy.Log {
	p.Settle()
	return p.Take()
}

// The delays that the proxy adds each way: none, as to a store in the same country, and as to
// one on another continent.
const (
	near = 20 * time.Millisecond
	far  = 80 * time.Millisecond
)

// contender is a way to lock, with its measurements.
type contender struct {
	row
	take take
}

// latencies measures acquire and release on MinIO.
func (b *bench) latencies(ctx context.Context) error {
	at, err := newBucket(ctx)
	if err != nil {
		return err
	}
	defer at.close()
	if _, err := timed(ctx, resticEnv(at), restic("init")); err != nil {
		return err
	}
	for _, added := range []time.Duration{0, near, far} {
		at.proxy.Behave(proxy.Behaviour{Latency: added})
		for _, mode := range []replock.Mode{replock.Shared, replock.Exclusive} {
			name := fmt.Sprintf("%s lock on MinIO, %d ms added each way", mode, added.Milliseconds())
			b.say("%s", name)
			g := group{name: name}
			if err := b.libraries(ctx, at, mode, added, &g); err != nil {
				return err
			}
			if err := b.programs(ctx, at, mode, &g); err != nil {
				return err
			}
			b.table = append(b.table, g)
		}
	}
	return nil
}

// libraries measures the contenders in turn, so that other load on the machine meets all of
// them.
func (b *bench) libraries(ctx context.Context, at *bucket, mode replock.Mode, added time.Duration, g *group) error {
	all, err := contenders(ctx, at, mode)
	if err != nil {
		return err
	}
	for range b.trips(added) {
		for _, c := range all {
			if err := c.measure(ctx, at.proxy, c.take, nil); err != nil {
				return err
			}
		}
	}
	for _, c := range all {
		g.rows = append(g.rows, c.row)
	}
	return nil
}

// programs measures whole commands, also in turn.
func (b *bench) programs(ctx context.Context, at *bucket, mode replock.Mode, g *group) error {
	all := b.commands(at, mode)
	for range b.command {
		for _, c := range all {
			if err := c.measure(ctx, at.proxy); err != nil {
				return err
			}
		}
	}
	for _, c := range all {
		if c.locks != "" {
			g.rows = append(g.rows, c.locksRow)
		}
		g.rows = append(g.rows, c.more)
	}
	return nil
}

// contenders are those for a mode. Each has a store and connections of its own.
func contenders(ctx context.Context, at *bucket, mode replock.Mode) (all []*contender, err error) {
	s3, minio := at.s3(at.proxy.Host(), "locks"), at.minio(at.proxy.Host(), "locks")
	for _, c := range []struct {
		name, url string
		lock      lock
		exclusive bool // only
	}{
		{"repolock, s3, conditions=kept", s3 + "&conditions=kept", ours, true},
		{"repolock, minio, conditions=kept", minio + "&conditions=kept", ours, true},
		{"repolock, s3", s3, ours, false},
		{"repolock, minio", minio, ours, false},
		{"original protocol, s3", s3, theirs, false},
	} {
		if c.exclusive && mode != replock.Exclusive {
			continue
		}
		s, err := warm(ctx, c.url)
		if err != nil {
			return nil, err
		}
		all = append(all, &contender{row{name: c.name}, c.lock(s, mode)})
	}
	return all, nil
}

// command is a command that takes a lock and does next to nothing, with its measurements: how
// much more it does than the same without its lock.
type command struct {
	more         row
	locked, bare []string
	env          []string
	// locks, if set, is the prefix of the keys of its locks. Then locksRow has the requests
	// for them that the proxy has seen.
	locks    string
	locksRow row
}

// resticPrefix is restic's repository in the bucket.
const resticPrefix = "restic"

// commands returns restic's commands and ours for a mode.
func (b *bench) commands(at *bucket, mode replock.Mode) (all []*command) {
	for _, params := range []string{"&conditions=kept", ""} {
		run := func(lock string) []string {
			return []string{b.repolock, "run", lock, "--repo", at.s3(at.proxy.Host(), "run") + params, "--", "true"}
		}
		name := fmt.Sprintf("repolock run --%s -- true, s3%s, less --no-lock", mode, strings.Replace(params, "&", ", ", 1))
		all = append(all, &command{more: row{name: name}, locked: run("--" + mode.String()), bare: run("--no-lock")})
	}
	args := map[replock.Mode][]string{replock.Shared: {"cat", "config"}, replock.Exclusive: {"check"}}[mode]
	name := "restic " + strings.Join(args, " ")
	return append(all, &command{
		more:     row{name: name + ", less --no-lock"},
		locked:   restic(args...),
		bare:     restic(append([]string{"--no-lock"}, args...)...),
		env:      resticEnv(at),
		locks:    resticPrefix + "/locks/",
		locksRow: row{name: name + ", its requests on locks/"},
	})
}

func restic(args ...string) []string {
	return append([]string{"restic", "--quiet", "--no-cache"}, args...)
}

func resticEnv(at *bucket) []string {
	return []string{
		"RESTIC_REPOSITORY=s3:http://" + at.proxy.Host() + "/" + at.name + "/" + resticPrefix,
		"RESTIC_PASSWORD=bench", "AWS_DEFAULT_REGION=us-east-1",
	}
}

// measure runs it once with its lock and once without.
func (c *command) measure(ctx context.Context, p *proxy.Proxy) error {
	passed(p)
	locked, err := timed(ctx, c.env, c.locked)
	if err != nil {
		return err
	}
	with := passed(p)
	bare, err := timed(ctx, c.env, c.bare)
	if err != nil {
		return err
	}
	without := passed(p)
	c.more.n++
	c.more.both = append(c.more.both, locked-bare)
	c.more.trips[0] = append(c.more.trips[0], with.Trips()-without.Trips())
	c.more.requests[0] = append(c.more.requests[0], len(with)-len(without))
	if c.locks == "" {
		return nil
	}
	acquire, release := lockPart(with, c.locks)
	if len(acquire) == 0 || len(release) == 0 {
		return fmt.Errorf("%v took no lock:\n%v", c.locked, with)
	}
	c.locksRow.n++
	c.locksRow.lasted(span(acquire), span(release))
	c.locksRow.count(0, acquire)
	c.locksRow.count(1, release)
	return nil
}

// timed returns how long a command takes.
func timed(ctx context.Context, env, args []string) (time.Duration, error) {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	start := time.Now()
	out, err := c.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return time.Since(start), nil
}

// lockPart returns the requests of a command for its locks until it deletes its own, and from
// then on.
func lockPart(l proxy.Log, locks string) (acquire, release proxy.Log) {
	for _, e := range l {
		switch {
		case !strings.HasPrefix(e.Key, locks):
		case e.Op == "delete" || len(release) > 0:
			release = append(release, e)
		default:
			acquire = append(acquire, e)
		}
	}
	return acquire, release
}

// span returns the time from the beginning of the first request to the end of the last one.
func span(l proxy.Log) time.Duration {
	first, last := l[0].Start, l[0].End
	for _, e := range l {
		if e.Start.Before(first) {
			first = e.Start
		}
		if e.End.After(last) {
			last = e.End
		}
	}
	return last.Sub(first)
}

// amongOthers measures acquires among the shared locks of others: live ones, and those that
// crashed holders have left.
func (b *bench) amongOthers(ctx context.Context) error {
	at, err := newBucket(ctx)
	if err != nil {
		return err
	}
	defer at.close()
	shared := group{name: "shared lock on MinIO, among others' shared locks"}
	exclusive := group{name: "exclusive lock on MinIO, among others' shared locks"}
	for _, n := range b.live {
		c, err := b.newCrowd(ctx, at, n)
		if err != nil {
			return err
		}
		s, e, err := c.live(ctx, b.crowd)
		if err != nil {
			return err
		}
		shared.rows, exclusive.rows = append(shared.rows, s), append(exclusive.rows, e)
		if n < slices.Max(b.live) {
			continue
		}
		b.say("waiting for the %d to expire", n)
		if s, e, err = c.stale(ctx, b.crowd); err != nil {
			return err
		}
		shared.rows, exclusive.rows = append(shared.rows, s), append(exclusive.rows, e)
	}
	b.table = append(b.table, shared, exclusive)
	return nil
}

// crowd is a repository with the flags of n shared locks of other machines.
type crowd struct {
	n     int
	put   time.Time // the last of them
	proxy *proxy.Proxy
	store store.Store // through the proxy
}

// settling is the age from which a flag isn't taken for that of an acquirer about to withdraw.
const settling = 4 * time.Second

func (b *bench) newCrowd(ctx context.Context, at *bucket, n int) (*crowd, error) {
	b.say("%d shared locks on MinIO", n)
	prefix := fmt.Sprintf("crowd-%d", n)
	direct, err := warm(ctx, at.s3(at.host, prefix))
	if err != nil {
		return nil, err
	}
	s, err := warm(ctx, at.s3(at.proxy.Host(), prefix)+"&conditions=kept")
	if err != nil {
		return nil, err
	}
	if err := flags(ctx, direct, n); err != nil {
		return nil, err
	}
	c := &crowd{n: n, put: time.Now(), proxy: at.proxy, store: s}
	return c, sleep(ctx, settling)
}

// live measures a shared acquire, which succeeds, and an exclusive one, which fails if there
// are others.
func (c *crowd) live(ctx context.Context, n int) (shared, exclusive row, err error) {
	refused, outcome := isHeld, ", refused"
	if c.n == 0 {
		refused, outcome = nil, ""
	}
	shared, exclusive = row{name: fmt.Sprintf("%d live", c.n)}, row{name: fmt.Sprintf("%d live%s", c.n, outcome)}
	for range n {
		if err := shared.measure(ctx, c.proxy, ours(c.store, replock.Shared), nil); err != nil {
			return shared, exclusive, err
		}
		if err := exclusive.measure(ctx, c.proxy, ours(c.store, replock.Exclusive), refused); err != nil {
			return shared, exclusive, err
		}
	}
	return shared, exclusive, nil
}

func isHeld(err error) bool { return errors.Is(err, replock.ErrHeld) }

// stale waits until no lock is live any more, and measures a shared acquire, which ignores
// them, and an exclusive one, which removes them, and so runs only once.
func (c *crowd) stale(ctx context.Context, n int) (shared, exclusive row, err error) {
	const margin = 4 * time.Second // that the engine adds for the store's clock, and as much again
	if err := sleep(ctx, time.Until(c.put.Add(replock.DefaultTTL+margin))); err != nil {
		return shared, exclusive, err
	}
	shared, exclusive = row{name: fmt.Sprintf("%d stale", c.n)}, row{name: fmt.Sprintf("%d stale, removed", c.n)}
	for range n {
		if err := shared.measure(ctx, c.proxy, ours(c.store, replock.Shared), nil); err != nil {
			return shared, exclusive, err
		}
	}
	if err := exclusive.measure(ctx, c.proxy, ours(c.store, replock.Exclusive), nil); err != nil {
		return shared, exclusive, err
	}
	left, err := c.store.List(ctx, replock.DefaultPrefix, "")
	if err == nil && len(left.Objects) > 0 {
		err = fmt.Errorf("%d or more of %d stale locks weren't removed", len(left.Objects), c.n)
	}
	return shared, exclusive, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flags puts the flags of n shared locks. The first ones of a listing are the youngest, as if
// their holders refreshed them.
func flags(ctx context.Context, s store.Store, n int) error {
	key, body, err := specimen(ctx, s)
	if err != nil {
		return err
	}
	stem := key[:strings.LastIndex(key, "-")+1]
	var next atomic.Int64
	next.Store(int64(n))
	const writers = 16
	errs := make(chan error, writers)
	for range writers {
		go func() {
			var err error
			for i := next.Add(-1); i >= 0 && err == nil; i = next.Add(-1) {
				id := fmt.Sprintf("%032x", i)
				_, err = s.Put(ctx, stem+id, body(id), store.PutOptions{})
			}
			errs <- err
		}()
	}
	var all []error
	for range writers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// specimen returns the key and the body of a lock of another machine. The body is a real
// lock's, with another id and the present time.
func specimen(ctx context.Context, s store.Store) (key string, body func(id string) []byte, err error) {
	l, err := replock.New(s, replock.Options{})
	if err != nil {
		return "", nil, err
	}
	k, err := l.Shared(ctx, "backup")
	if err != nil {
		return "", nil, err
	}
	raw, _, err := s.Get(ctx, k.Key(), 1<<16)
	if err = errors.Join(err, k.Release(ctx)); err != nil {
		return "", nil, err
	}
	fields := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // a float would round the largest of them
	if err := decoder.Decode(&fields); err != nil {
		return "", nil, err
	}
	fields["host_id"], fields["boot_id"] = "another", "another"
	return k.Key(), func(id string) []byte {
		mine, now := maps.Clone(fields), time.Now().UTC()
		mine["id"], mine["refreshed_at"], mine["expires_at"] = id, now, now.Add(replock.DefaultTTL)
		raw, err := json.Marshal(mine)
		if err != nil {
			panic(err) // it was JSON before
		}
		return raw
	}, nil
}
