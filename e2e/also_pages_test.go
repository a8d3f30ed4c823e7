//go:build linux && programs && !minio

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/internal/text"
)

// These tests run the pages about locks in Redis and PostgreSQL, with servers on free ports.

// at replaces the server in the blocks of a page.
func (p *page) at(server, ours string) []string {
	p.t.Helper()
	blocks := p.Fenced["sh"]
	for i, block := range blocks {
		blocks[i] = strings.ReplaceAll(block, server, ours)
	}
	return blocks
}

func TestRedisPage(t *testing.T) {
	p := alone(t, "locks-redis.md")
	server := redistest.New(t)
	_, port, _ := strings.Cut(server.Addr(), ":")
	p.program("redis-cli", `PATH=${PATH#*:} exec redis-cli -p `+port+` "$@"`)
	p.program("restic", `echo "restic $* $REPOLOCK_MODE"`)
	blocks := p.at("127.0.0.1:6379", server.Addr())
	if len(blocks) != 5 {
		t.Fatalf("%d blocks", len(blocks))
	}
	p.with("repo").each(blocks[:1], `restic prune exclusive\n`)
	p.each(blocks[1:], `^$`, `^OK\n1\n$`, `^no locks\n.*nothing to break\n`, `eviction .*persistence .*fit for locks`)
	// Beside a holder, the other program gets nothing, and break-lock ends it.
	url := "redis://" + server.Addr() + "/0?key=nightly"
	p.each([]string{"repolock run --also " + text.Quote(url) + " -- sh -c " + text.Quote(blocks[2]+blocks[3]+"sleep 600") + " || echo $?"},
		`^\n0\n.*live.* on .*lock lost: .*redis://.*79\n$`)
}

func TestPostgresPage(t *testing.T) {
	p := alone(t, "locks-postgres.md")
	server := pgtest.New(t)
	server.PSQL("create role backup login")
	server.PSQL("create database app owner backup")
	const url = "backup@db.example.com/app"
	ours := "backup@" + server.Address() + "/app"
	blocks := p.at(url, ours)
	p.each(blocks, `no locks\n.*nothing to break\n.*fit for locks`)
	// The SQL of another program: the lock is free, and then repolock has it.
	psql := fmt.Sprintf("psql -XqAt -h 127.0.0.1 -p %d -U backup app <<'END'\n%s;\n%s;\nEND\n", server.Port(), p.Fenced["sql"][0], p.Fenced["sql"][1])
	p.each([]string{psql}, `^t\n`)
	p.each([]string{"repolock run --also 'postgres://" + ours + "?key=nightly' -- sh -c " + text.Quote(psql)},
		`^f\n.*repolock: nightly on `)
	// A lock that is broken is lost.
	p.each([]string{"repolock run --also 'postgres://" + ours + "?key=nightly' -- sh -c " + text.Quote(blocks[0]+"sleep 600") + " || echo $?"},
		`live.*lock lost: .*administrator command.*postgres://.*79\n$`)
}
