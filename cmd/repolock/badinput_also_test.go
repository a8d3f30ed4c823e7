package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// badAlso are wrong inputs about the locks of --also. TMP stands for a directory.
var badAlso = []struct {
	name string
	args string // TMP stands for a directory, and a trailing -- for a command that mustn't run
	code int
	says string
}{
	{"empty", "run --also= --", 64, "its value is empty"},
	{"no kind", "run --also nonsense --", 64, "no such kind of lock"},
	{"a path", "run --also /srv/repo --", 64, "no such kind of lock"},
	{"unknown kind", "run --also memcached://u:secret@host/x --", 64, "memcached"},
	{"a repository as it is", "run --also s3://secret@bucket/path --", 64, "repo:URL#NAME"},
	{"very long kind", "run --also LONG --", 64, "no such kind of lock"},
	{"very long directory", "run --also beads:/LONG --", 74, "stat /"},
	{"very long key", "run --also redis://host?key=LONG --", 64, "key"},
	{"very long name", "run --also tower-fleet:TMP/LONG --", 64, "lock name"},
	{"NUL", "run --also beads:a\x00b --", 64, "printable"},
	{"newline", "run --also tower-fleet:TMP/a\nb/c --", 64, "can't be shown"},
	{"newline in a URL", "run --also redis://host?key=a\nb --", 64, "control characters"},
	{"escape", "run --also \x1b[2J --", 64, "no such kind"},
	{"no value", "run --also", 64, "also"},
	// Redis.
	{"redis without key", "run --also redis://host/0 --", 64, "?key=KEY"},
	{"redis with empty key", "run --also redis://host/0?key= --", 64, "its key is empty"},
	{"redis with password", "run --also redis://:secret@host?key=k --", 64, "REPOLOCK_REDIS_PASSWORD"},
	{"redis with user and password", "run --also redis://u:secret@host?key=k --", 64, "password-file"},
	{"redis with password as parameter", "run --also redis://host?key=k&password=secret --", 64, "parameter"},
	{"redis without host", "run --also redis:///0?key=k --", 64, "host"},
	{"redis with two hosts", "run --also redis://a,b?key=k --", 64, "host"},
	{"redis database", "run --also redis://host/x?key=k --", 64, "/0"},
	{"redis port", "run --also redis://host:99999?key=k --", 64, "65535"},
	{"redis ca without TLS", "run --also redis://host?key=k&ca=TMP/ca --", 64, "rediss"},
	{"redis password file missing", "run --also redis://127.0.0.1:1?key=k&password-file=TMP/none --", 74, "none"},
	// PostgreSQL.
	{"postgres without key", "run --also postgres://host/db --", 64, "key"},
	{"postgres without database", "run --also postgres://host?key=k --", 64, "database"},
	{"postgres with password", "run --also postgres://u:secret@host/db?key=k --", 64, "REPOLOCK_POSTGRES_PASSWORD"},
	{"postgres with password as parameter", "run --also postgres://host/db?key=k&password=secret --", 64, "REPOLOCK_POSTGRES_PASSWORD"},
	{"postgres with two ats", "run --also postgres://u@secret@host/db?key=k --", 64, "one host"},
	{"postgres port", "run --also postgres://host:0/db?key=k --", 64, "65535"},
	{"postgres misspelt", "run --also postgre://u:secret@host/db?key=k --", 64, "no such kind"},
	// tower-fleet.
	{"tower-fleet without directory", "run --also tower-fleet:name --", 64, "working directory"},
	{"tower-fleet without name", "run --also tower-fleet:TMP/ --", 64, "lock name"},
	{"tower-fleet upper case", "run --also tower-fleet:TMP/Name --", 64, "lock name"},
	{"tower-fleet with suffix", "run --also tower-fleet:TMP/a.lock --", 64, "leave out .lock"},
	{"tower-fleet host", "run --also tower-fleet://host/locks/a --", 64, "host"},
	{"tower-fleet home", "run --also tower-fleet:~/locks/a --", 64, "$HOME"},
	{"tower-fleet directory is a file", "run --also tower-fleet:TMP/file/a --", 78, "is no directory"},
	{"tower-fleet parent is a file", "run --also tower-fleet:TMP/file/x/a --", 78, "is no directory"},
	{"tower-fleet without the parent", "run --also tower-fleet:TMP/none/a/x --", 78, "/none doesn't exist"},
	{"tower-fleet directory of others", "run --also tower-fleet:TMP/open/a --", 78, "chmod 700"},
	// beads.
	{"beads without directory", "run --also beads: --", 64, "no directory"},
	{"beads host", "run --also beads://host/x --", 64, "host"},
	{"beads query", "run --also beads:TMP?key=k --", 64, "query"},
	{"beads missing", "run --also beads:TMP/none --", 78, "doesn't exist"},
	{"beads is a file", "run --also beads:TMP/asfile --", 78, "no directory"},
	// Repositories.
	{"repo without name", "run --also repo:TMP/repo --", 64, "repo:URL#NAME"},
	{"repo with empty name", "run --also repo:TMP/repo# --", 64, "repo:URL#NAME"},
	{"repo with wrong name", "run --also repo:TMP/repo#Bad/Name --", 64, "lock name"},
	{"repo without URL", "run --also repo:#n --", 64, "repo:"},
	{"repo with unknown scheme", "run --also repo:gopher://u:secret@h/x#n --", 64, "gopher"},
	{"repo missing", "run --also repo:TMP/none#n --", 69, "no such directory"},
	// Sets.
	{"twice", "run --also beads:TMP/b --also beads:TMP/b/.beads/ --", 64, "named twice"},
	{"twice, by other users", "run --also redis://a@h?key=k --also redis://b@h:6379/0?key=k --", 64, "named twice"},
	{"twice, as the first", "-r TMP/repo --name n prune --also repo:TMP/repo/#n --", 64, "named twice"},
	{"one is wrong", "run --also beads:TMP/b --also tower-fleet:TMP/X --", 64, "lock name"},
	{"the last is missing", "run --also beads:TMP/none --also tower-fleet:TMP/locks/a --", 78, "doesn't exist"},
	// Beside a repository.
	{"run without a mode", "-r TMP/repo run --also beads:TMP/b --", 64, "--shared, --exclusive or --no-lock"},
	{"fence", "run --also beads:TMP/b --fence --", 64, "--fence"},
	{"name", "run --name n --also beads:TMP/b --", 64, "--name"},
	{"acquire with name", "acquire --exclusive --for-pid none --name n --also beads:TMP/b", 64, "--name"},
	{"acquire with fence", "acquire --exclusive --for-pid none --fence --also beads:TMP/b", 64, "--fence"},
	{"acquire without a mode", "acquire --for-pid none --also beads:TMP/b", 64, "--shared or --exclusive"},
	{"acquire of nonsense", "acquire --exclusive --for-pid none --also nonsense", 64, "no such kind"},
	{"no lock", "run --no-lock --also beads:TMP/b --", 64, "--no-lock"},
	{"prefer-global and prune", "prune --also beads:TMP/b --hint prefer-global --", 64, "exclusive"},
	{"unreachable and prune", "prune --also beads:TMP/b --if-unreachable run --", 64, "exclusive"},
	// --settle and --force-lock.
	{"settle without also", "-r TMP/repo backup --settle 1s --", 64, "--also"},
	{"settle negative", "backup --also beads:TMP/b --settle=-1s --", 64, "negative"},
	{"settle no duration", "backup --also beads:TMP/b --settle soon --", 64, "settle"},
	{"force-lock without also", "-r TMP/repo prune --force-lock --", 64, "break-lock"},
	{"force-lock without tower-fleet", "restore --also beads:TMP/b --force-lock --", 64, "tower-fleet"},
	{"acquire with settle alone", "-r TMP/repo acquire --shared --for-pid none --settle 1s", 64, "--also"},
	{"acquire with force-lock alone", "-r TMP/repo acquire --shared --for-pid none --force-lock", 64, "--force-lock"},
	{"status has no settle", "status --also beads:TMP/b --settle 1s", 64, "unknown flag"},
	{"break-lock has no force-lock", "break-lock --also beads:TMP/b --force-lock", 64, "unknown flag"},
	{"check has no also", "check --also beads:TMP/b", 64, "unknown flag"},
	// Commands that look.
	{"status of nonsense", "status --also nonsense", 64, "no such kind"},
	{"status of a secret", "status --also redis://u:secret@host?key=k", 64, "password"},
	{"status of missing beads", "status --also beads:TMP/none", 78, "doesn't exist"},
	{"status of a missing repository", "status --also repo:TMP/none#n", 69, "no such directory"},
	{"break-lock of nonsense", "break-lock --yes --also nonsense", 64, "no such kind"},
	{"break-lock of missing beads", "break-lock --yes --also beads:TMP/none", 78, "doesn't exist"},
	{"break-lock of a wrong id", "break-lock --yes --id zzzz --also beads:TMP/b", 1, "no lock with the id"},
	{"doctor of redis without key", "doctor --also redis://host", 64, "key"},
	{"doctor of a secret", "doctor --also postgres://u:secret@h/d?key=k", 64, "password"},
	{"doctor of missing beads", "doctor --also beads:TMP/none", 78, "doesn't exist"},
	{"doctor of a missing repository", "doctor --also repo:TMP/none#n", 69, "no such directory"},
	{"doctor of no kind", "-r TMP/repo doctor --also gopher://u:secret@host/x", 64, "gopher"},
	{"dry run of missing beads", "run --dry-run --also beads:TMP/none --", 78, "doesn't exist"},
	{"dry run of nonsense", "run --dry-run --also nonsense --", 64, "no such kind"},
}

// TestBadAlso: each wrong input about other locks is one error with the right exit code, shows no
// secret, and leaves nothing.
func TestBadAlso(t *testing.T) {
	for _, c := range badAlso {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{"repo/data", "file", "asfile/.beads", "b/.beads/db"} {
				write(t, filepath.Join(dir, filepath.FromSlash(name)), "x")
			}
			if err := os.Mkdir(filepath.Join(dir, "open"), 0o755); err != nil {
				t.Fatal(err)
			}
			before := tree(t, dir)
			line := strings.NewReplacer("TMP", dir, "LONG", strings.Repeat("x", 5000)).Replace(c.args)
			args := strings.Split(line, " ")
			if args[len(args)-1] == "--" {
				args = append(args, "sh", "-c", "touch '"+filepath.Join(dir, "ran")+"'; exit 1") // in place of this test, perhaps
			}
			for _, json := range []bool{false, true} {
				if json {
					args = append([]string{"--json"}, args...)
				}
				var out, err bytes.Buffer
				if code := run(args, &out, &err); code != c.code {
					t.Errorf("exit code %d, want %d", code, c.code)
				}
				checkError(t, json, err.String(), c.says)
				if out.Len() > 0 {
					t.Errorf("on stdout: %q", out.String())
				}
			}
			if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
				t.Errorf("files changed:\n%s", diff)
			}
		})
	}
}
