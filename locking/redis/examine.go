package redis

import (
	"context"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/locking"
)

// Examine asks the server for INFO, CONFIG and TIME, and has it execute a script that does
// nothing. What the server refuses to say is a Finding, not an error.
func (b *Backend) Examine(ctx context.Context) ([]locking.Finding, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	heard := b.heard.Load()
	var a answersOf
	if err := b.do(ctx, func(ctx context.Context) error { return a.ask(ctx, b) }); err != nil {
		return nil, b.fail(heard, err, "it wasn't examined")
	}
	if a.infoErr != nil {
		return []locking.Finding{b.refusal(a.infoErr), b.scripts(a.script), clocks(a)}, nil
	}
	found := []locking.Finding{version(a.info)}
	if f := cluster(a.info); f != nil {
		found = append(found, *f)
	}
	return append(found, role(a.info), eviction(a.info), b.persistence(a), b.scripts(a.script), clocks(a)), nil
}

// answersOf is what a server has answered.
type answersOf struct {
	info    map[string]string
	infoErr error

	fsync     string // "" if CONFIG is refused
	configErr error

	script error

	ahead   time.Duration // the server's clock, of ours
	timeErr error
}

// ask returns an error only if there was no answer, or these credentials may do nothing.
func (a *answersOf) ask(ctx context.Context, b *Backend) error {
	if err := b.client.Ping(ctx).Err(); err != nil && (!answered(err) || !goredis.HasErrorPrefix(err, "NOPERM") &&
		!goredis.HasErrorPrefix(err, "unknown command") && !goredis.HasErrorPrefix(err, "MASTERDOWN")) {
		return err
	}
	info, err := b.client.Info(ctx, "everything").Result()
	if a.infoErr = err; err != nil && !answered(err) {
		return err
	}
	a.info = fields(info)
	config, err := b.client.ConfigGet(ctx, "appendfsync").Result()
	if a.configErr = err; err != nil && !answered(err) {
		return err
	}
	a.fsync = config["appendfsync"]
	a.script = b.client.Eval(ctx, "return 1", []string{b.prefix + "repolock-doctor"}).Err()
	if a.script != nil && !answered(a.script) {
		return a.script
	}
	sent := b.opts.Clock.Now()
	at, err := b.client.Time(ctx).Result()
	if a.timeErr = err; err != nil && !answered(err) {
		return err
	}
	if received := b.opts.Clock.Now(); err == nil {
		a.ahead = at.Sub(sent.Add(received.Sub(sent) / 2))
	}
	return nil
}

// fields parses the answer to INFO.
func fields(info string) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

func (b *Backend) refusal(err error) locking.Finding {
	return locking.Finding{
		What: "settings", Found: "the server refuses INFO: " + b.clean(err.Error()) +
			": it isn't known whether it evicts locks, forgets them, or is a replica",
		Verdict: locking.Doubtful, Advice: "allow the user INFO, or look with an administrator's credentials",
	}
}

func version(info map[string]string) locking.Finding {
	name, version := "Redis", info["redis_version"]
	if other := info["server_name"]; other != "" && other != "redis" {
		name, version = other, info[other+"_version"]
	}
	f := locking.Finding{What: "server", Found: clip(name + " " + version)}
	if info["redis_mode"] == "sentinel" {
		f.Found += ", a sentinel"
		f.Verdict, f.Advice = locking.Bad, "a sentinel keeps no keys: name the master"
	}
	return f
}

func cluster(info map[string]string) *locking.Finding {
	if info["cluster_enabled"] != "1" {
		return nil
	}
	return &locking.Finding{
		What: "cluster", Found: "the server is a node of a cluster", Verdict: locking.Doubtful,
		Advice: "a lock works only on the node that has its slot, and a failover can lose it: use a server that isn't " +
			"a cluster",
	}
}

func role(info map[string]string) locking.Finding {
	f := locking.Finding{What: "replication", Found: "master without replicas"}
	switch {
	case info["role"] == "slave":
		f.Found = "replica of " + clip(info["master_host"])
		f.Verdict, f.Advice = locking.Bad, "name the master"
	case info["role"] != "master":
		f.Found, f.Verdict, f.Advice = "the role is unknown", locking.Doubtful, "name a master"
	case info["connected_slaves"] != "0" && info["connected_slaves"] != "":
		f.Found = "master with replicas: " + clip(info["connected_slaves"])
		f.Verdict = locking.Doubtful
		f.Advice = "replication is asynchronous: a failover can lose a lock, so that two holders run until the next " +
			"renewal of the first; " +
			"use a server without failover if that matters"
	}
	return f
}

func eviction(info map[string]string) locking.Finding {
	policy, limit := info["maxmemory_policy"], info["maxmemory"]
	f := locking.Finding{What: "eviction", Found: clip(fmt.Sprintf("maxmemory-policy %s, maxmemory %s", policy, limit))}
	switch {
	case policy == "noeviction":
	case policy == "" || limit == "":
		f.Found, f.Verdict, f.Advice = "the policy is unknown", locking.Doubtful, "use maxmemory-policy noeviction"
	case limit == "0":
		f.Verdict = locking.Doubtful
		f.Advice = "the server evicts locks once maxmemory is set: use maxmemory-policy noeviction"
	default:
		f.Verdict = locking.Bad
		f.Advice = "a server that is full evicts locks, because they expire: use maxmemory-policy noeviction"
	}
	return f
}

func (b *Backend) persistence(a answersOf) locking.Finding {
	f := locking.Finding{What: "persistence", Verdict: locking.Doubtful}
	switch {
	case a.info["aof_enabled"] != "1":
		f.Found = "no append-only file"
		f.Advice = "a restart forgets locks, so that two holders run until the next renewal of the first: use " +
			"appendonly yes and appendfsync always"
	case a.fsync == "always":
		f.Found, f.Verdict = "append-only file, appendfsync always", locking.Good
	case a.fsync == "":
		f.Found = "append-only file, appendfsync unknown: the server refuses CONFIG"
		if a.configErr != nil {
			f.Found += ": " + b.clean(a.configErr.Error())
		}
		f.Advice = "a crash of the machine forgets the last locks unless appendfsync is always: look with an " +
			"administrator's credentials"
	default:
		f.Found = "append-only file, appendfsync " + clip(a.fsync)
		f.Advice = "a crash of the machine forgets the locks of the last second or more: use appendfsync always"
	}
	return f
}

func (b *Backend) scripts(err error) locking.Finding {
	if err == nil {
		return locking.Finding{What: "scripts", Found: "EVAL works"}
	}
	return locking.Finding{
		What: "scripts", Found: "the server refuses EVAL: " + b.clean(err.Error()), Verdict: locking.Bad,
		Advice: "locks can't be renewed or released without: allow the user EVAL and EVALSHA on the key",
	}
}

// clocks is for information: the server's clock alone counts the ttl.
func clocks(a answersOf) locking.Finding {
	f := locking.Finding{What: "clock"}
	switch {
	case a.timeErr == nil:
		f.Found = fmt.Sprintf("the server's clock is %v ahead of this machine's; locks don't depend on it",
			a.ahead.Round(time.Millisecond))
	default:
		f.Found = "the server refuses TIME; locks don't depend on it"
	}
	return f
}

// clip bounds what a server says about itself.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return new(Backend).clean(s)
}
