//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/replock"
)

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
	if b.lacks("restic") {
		return all
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
