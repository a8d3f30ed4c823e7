package redis

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// notePrefix is the beginning of a note's key; the rest is the lock's key. No lock's key begins with it, so that a
// program that lists locks doesn't list notes.
const notePrefix = "repolock:holder:"

// note describes a holder to other programs.
type note struct {
	Revision string    `json:"revision"` // revision of the lock that the note describes
	Holder   string    `json:"holder"`
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Version  string    `json:"version,omitempty"`
	Acquired time.Time `json:"acquired"`
	TTL      int64     `json:"ttl_ms"`
}

// revision returns a hash of a token, because the token must stay secret. breakScript computes the same hash.
func revision(token string) string {
	sum := sha1.Sum([]byte(token))
	return hex.EncodeToString(sum[:])
}

// newNote returns the note of a lock that is being acquired.
func (b *Backend) newNote(h locking.Handle) string {
	host, _ := os.Hostname()
	text, err := json.Marshal(note{
		revision(h.Token()), b.opts.Holder, host, os.Getpid(), b.opts.Version, clock.System{}.Now().UTC(),
		milliseconds(h.TTL()),
	})
	if err != nil {
		return dropNote // the clock shows a year after 9999
	}
	return string(text)
}

// PTTL returns noTTL for a key without an expiry, and goneTTL for a missing key. go-redis returns them as nanoseconds.
const (
	noTTL   = time.Duration(-1)
	goneTTL = time.Duration(-2)
)

// Inspect returns the holder of a lock from its note. Acquired is a time of the holder's clock. The lock expires at
// Renewed plus TTL, by this machine's clock. If another program's lock has no note, TTL is the remaining time, Renewed
// is now, and Acquired is zero. Stale is never set, because the server removes expired locks.
func (b *Backend) Inspect(ctx context.Context, key string) (*locking.Info, error) {
	if err := b.check(ctx, key); err != nil {
		return nil, err
	}
	heard := b.heard.Load()
	info, err := start(ctx, b, func(ctx context.Context) (*locking.Info, error) { return b.inspect(ctx, key) }).wait(ctx)
	if err != nil {
		return nil, b.fail(heard, err, "lock %q can't be inspected", key)
	}
	return info, nil
}

func (b *Backend) inspect(ctx context.Context, key string) (*locking.Info, error) {
	pipe, name := b.client.Pipeline(), b.prefix+key
	value, ttl := pipe.Get(ctx, name), pipe.PTTL(ctx, name)
	text := goredis.NewStringResult("", goredis.Nil)
	if !b.quiet.Load() {
		text = pipe.Get(ctx, notePrefix+name)
	}
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	now, left := clock.System{}.Now(), ttl.Val()
	switch err := value.Err(); {
	case errors.Is(err, goredis.Nil):
		return nil, nil
	case goredis.HasErrorPrefix(err, "WRONGTYPE") && ttl.Err() == nil:
		return &locking.Info{Key: key, Renewed: now, TTL: max(left, 0), Unreadable: fmt.Sprintf("the redis key %q isn't a string", name)}, nil
	case err != nil:
		return nil, err
	case ttl.Err() != nil:
		return nil, ttl.Err()
	case left == goneTTL:
		return nil, nil
	}
	info := &locking.Info{Key: key, Revision: revision(value.Val())}
	if left == noTTL {
		info.Unreadable = fmt.Sprintf("the redis key %q doesn't expire: only its holder frees the lock", name)
		return info, nil
	}
	info.Renewed, info.TTL = now, left
	var n note
	if text.Err() != nil || json.Unmarshal([]byte(text.Val()), &n) != nil || n.Revision != info.Revision {
		return info, nil
	}
	info.Holder, info.Host, info.PID, info.Acquired = b.clean(n.Holder), b.clean(n.Host), n.PID, n.Acquired
	if ttl := time.Duration(n.TTL) * time.Millisecond; ttl >= left {
		info.Renewed, info.TTL = now.Add(left-ttl), ttl
	}
	return info, nil
}

// Break removes the lock that Inspect has described, if its token is still the same. The holder runs on until its next
// renewal. If stale is set, Break does nothing, because no lock in Redis is stale. Break returns an error for a key
// that isn't a string. If a program stores the same value for each holder, Break can't distinguish them.
func (b *Backend) Break(ctx context.Context, seen *locking.Info, stale bool) (bool, error) {
	if err := b.check(ctx, seen.Key); err != nil || stale {
		return false, err
	}
	name, heard := b.prefix+seen.Key, b.heard.Load()
	if seen.Revision == "" {
		return false, fmt.Errorf("%s: lock %q wasn't broken: the key %q isn't a string, so it isn't a lock of this format: "+
			"remove it by DEL once you know whose it is", b.server, seen.Key, name)
	}
	code, err := start(ctx, b, func(ctx context.Context) (int, error) {
		return b.client.Eval(ctx, breakScript, []string{name}, seen.Revision).Int()
	}).wait(ctx)
	if err != nil {
		return false, b.fail(heard, err, "lock %q: it isn't known whether it was broken", seen.Key)
	}
	return code == done, nil
}

// Examine sends INFO, CONFIG GET, TIME, and a script that does nothing. If the server refuses one of them, that is a
// Finding, and no error.
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

// examine returns an error only if the server doesn't answer, or refuses all requests of this user.
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
	all := []server.Case{{"settings", info.Err() != nil, locking.Risky,
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
		{"clock", true, locking.Good, fmt.Sprintf("the server's clock is %s ahead of this machine's; locks don't depend on it", text.Offset(ahead)), ""},
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
		{"cluster", info["cluster_enabled"] == "1", locking.Risky, "the server is a node of a cluster", "a lock works only on the node " +
			"that has its slot, and a failover can lose it: use a server that isn't a cluster"},
		{"replication", info["role"] == "slave", locking.Bad, "replica of " + text.Line(info["master_host"]), "name the master"},
		{"replication", info["role"] != "master", locking.Risky, "the role is unknown", "name a master"},
		{"replication", replicas == "0" || replicas == "", locking.Good, "master without replicas", ""},
		{"replication", true, locking.Risky, "master with replicas: " + text.Line(replicas), "replication is asynchronous: a failover can " +
			"lose a lock, so that two holders run until the next renewal of the first; use a server without failover if that matters"},
		{"eviction", policy == "noeviction", locking.Good, evicts, ""},
		{"eviction", policy == "" || limit == "", locking.Risky, "the policy is unknown", "use maxmemory-policy noeviction"},
		{"eviction", limit == "0", locking.Risky, evicts,
			"the server evicts locks once maxmemory is set: use maxmemory-policy noeviction"},
		{"eviction", true, locking.Bad, evicts, "a server that is full evicts locks, because they expire: use maxmemory-policy noeviction"},
		{"persistence", info["aof_enabled"] != "1", locking.Risky, "no append-only file", "a restart forgets locks, so that two holders run " +
			"until the next renewal of the first: use appendonly yes and appendfsync always"},
		{"persistence", fsync == "always", locking.Good, "append-only file, appendfsync always", ""},
		{"persistence", fsync == "", locking.Risky, "append-only file, appendfsync unknown: the server refuses CONFIG" + b.refusal(config),
			"a crash of the machine forgets the last locks unless appendfsync is always: look with an administrator's credentials"},
		{"persistence", true, locking.Risky, "append-only file, appendfsync " + text.Line(fsync),
			"a crash of the machine forgets the locks of the last second or more: use appendfsync always"},
	}
}

// refusal returns ": " and the server's error, or "" if there was no error.
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
