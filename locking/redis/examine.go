package redis

import (
	"context"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// Examine sends INFO, CONFIG GET, TIME, and a script that does nothing. A refusal of the server is a
// Finding, not an error.
func (b *Backend) Examine(ctx context.Context) ([]locking.Finding, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	heard := b.heard.Load()
	found, err := start(ctx, b, b.examine).wait(ctx)
	if err != nil {
		return nil, b.fail(heard, err, "it wasn't examined")
	}
	return found, nil
}

// examine returns an error only if the server doesn't answer, or refuses this user altogether.
func (b *Backend) examine(ctx context.Context) ([]locking.Finding, error) {
	pipe := b.client.Pipeline()
	ping, info, config := pipe.Ping(ctx), pipe.Info(ctx, "everything"), pipe.ConfigGet(ctx, "appendfsync")
	script := pipe.Eval(ctx, "return 1", []string{b.prefix + "repolock-doctor"})
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	sent := clock.System{}.Now()
	at := b.client.Time(ctx)
	received := clock.System{}.Now()
	for _, c := range []goredis.Cmder{ping, info, config, script, at} {
		if c.Err() != nil && !answered(c.Err()) {
			return nil, c.Err()
		}
	}
	if err := ping.Err(); err != nil && !goredis.HasErrorPrefix(err, "NOPERM") &&
		!goredis.HasErrorPrefix(err, "unknown command") && !goredis.HasErrorPrefix(err, "MASTERDOWN") {
		return nil, err
	}
	all := []server.Case{{"settings", info.Err() != nil, locking.Doubtful,
		"the server refuses INFO" + b.refusal(info) + ": it is unknown whether it evicts locks, forgets them, or is a replica",
		"allow the user INFO, or look with an administrator's credentials"}}
	if info.Err() == nil {
		all = append(all, b.settings(fields(info.Val()), config)...)
	}
	ahead := at.Val().Sub(sent.Add(received.Sub(sent) / 2)).Round(time.Millisecond)
	all = append(all, []server.Case{
		{"scripts", script.Err() == nil, locking.Good, "EVAL works", ""},
		{"scripts", true, locking.Bad, "the server refuses EVAL" + b.refusal(script),
			"without it locks can't be renewed or released: allow the user EVAL on the key"},
		// Only the server's clock counts a ttl.
		{"clock", at.Err() != nil, locking.Good, "the server refuses TIME; locks don't depend on it", ""},
		{"clock", true, locking.Good, fmt.Sprintf("the server's clock is %v ahead of this machine's; locks don't depend on it", ahead), ""},
	}...)
	return server.Judge(all), nil
}

// settings returns the settings that INFO and CONFIG show.
func (b *Backend) settings(info map[string]string, config *goredis.MapStringStringCmd) []server.Case {
	name, version := "Redis", info["redis_version"]
	if other := info["server_name"]; other != "" && other != "redis" {
		name, version = other, info[other+"_version"]
	}
	version = text.Line(name + " " + version)
	replicas, policy, limit := info["connected_slaves"], info["maxmemory_policy"], info["maxmemory"]
	evicts := text.Line(fmt.Sprintf("maxmemory-policy %s, maxmemory %s", policy, limit))
	fsync := config.Val()["appendfsync"]
	return []server.Case{
		{"server", info["redis_mode"] == "sentinel", locking.Bad, version + ", a sentinel", "a sentinel keeps no keys: name the master"},
		{"server", true, locking.Good, version, ""},
		{"cluster", info["cluster_enabled"] == "1", locking.Doubtful, "the server is a node of a cluster", "a lock works only on the node " +
			"that has its slot, and a failover can lose it: use a server that isn't a cluster"},
		{"replication", info["role"] == "slave", locking.Bad, "replica of " + text.Line(info["master_host"]), "name the master"},
		{"replication", info["role"] != "master", locking.Doubtful, "the role is unknown", "name a master"},
		{"replication", replicas == "0" || replicas == "", locking.Good, "master without replicas", ""},
		{"replication", true, locking.Doubtful, "master with replicas: " + text.Line(replicas), "replication is asynchronous: a failover can " +
			"lose a lock, so that two holders run until the next renewal of the first; use a server without failover if that matters"},
		{"eviction", policy == "noeviction", locking.Good, evicts, ""},
		{"eviction", policy == "" || limit == "", locking.Doubtful, "the policy is unknown", "use maxmemory-policy noeviction"},
		{"eviction", limit == "0", locking.Doubtful, evicts,
			"the server evicts locks once maxmemory is set: use maxmemory-policy noeviction"},
		{"eviction", true, locking.Bad, evicts, "a server that is full evicts locks, because they expire: use maxmemory-policy noeviction"},
		{"persistence", info["aof_enabled"] != "1", locking.Doubtful, "no append-only file", "a restart forgets locks, so that two holders run " +
			"until the next renewal of the first: use appendonly yes and appendfsync always"},
		{"persistence", fsync == "always", locking.Good, "append-only file, appendfsync always", ""},
		{"persistence", fsync == "", locking.Doubtful, "append-only file, appendfsync unknown: the server refuses CONFIG" + b.refusal(config),
			"a crash of the machine forgets the last locks unless appendfsync is always: look with an administrator's credentials"},
		{"persistence", true, locking.Doubtful, "append-only file, appendfsync " + text.Line(fsync),
			"a crash of the machine forgets the locks of the last second or more: use appendfsync always"},
	}
}

// refusal returns ": " and the server's error, or "" if there is none.
func (b *Backend) refusal(c goredis.Cmder) string {
	if c.Err() == nil {
		return ""
	}
	return ": " + b.clean(c.Err().Error())
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
