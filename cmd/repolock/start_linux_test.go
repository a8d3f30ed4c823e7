package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/procgroup/guard"
)

// TestGuardIsEarly: a guard runs before the packages of the stores and of the command line, and
// their imports, are initialised. Those that come before it need nothing but what it needs
// itself, and it needs little.
func TestGuardIsEarly(t *testing.T) {
	done, code := initialised(t, nil, guard.Argument)
	if code != 0 || !slices.Contains(done, "os/signal") {
		t.Errorf("it ended with %d; initialised before it: %q", code, done)
	}
	late := regexp.MustCompile(`^(main|net|regexp|testing|flag|log|crypto/tls|encoding/(json|xml|gob)|golang\.org/.*|` +
		`github\.com/(repolock/repolock/(cmd|locking|replock|store)|alecthomas|minio|Backblaze|jackc/pgx/v5/(pgconn|pgtype)|redis).*|` +
		`github\.com/aws/.*/(service|config|credentials).*)$`)
	for _, name := range done {
		if late.MatchString(name) {
			t.Errorf("%s is initialised before it", name)
		}
	}
	if all, _ := initialised(t, nil, "-test.list", "^$"); len(done) > len(all)/4 || len(all) < 100 {
		t.Errorf("initialised before it are %d packages of %d: %q", len(done), len(all), done)
	}
}

// TestInitDoesLittle: our own packages do next to nothing before main: most of them aren't needed
// by most commands. A regular expression is compiled when it is needed.
func TestInitDoesLittle(t *testing.T) {
	const most = 40 // allocations
	var code, ours int
	for line := range strings.Lines(trace(t, &code, nil, "-test.list", "^$")) {
		f := strings.Fields(line)
		if len(f) < 10 || f[0] != "init" || !strings.HasPrefix(f[1], "github.com/repolock/repolock/") {
			continue
		}
		if n, err := strconv.Atoi(f[9]); err != nil || n > most && !strings.Contains(f[1], "/internal/test/") {
			t.Errorf("more than %d allocations: %s", most, line)
		}
		ours++
	}
	if ours < 10 {
		t.Errorf("it ended with %d, and initialised %d packages of ours", code, ours)
	}
}
