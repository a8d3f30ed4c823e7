package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-shellwords"

	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
)

var update = flag.Bool("update", false, "write what was printed into the golden files")

// TestMistakes: testdata/mistakes.txt has wrong command lines, and what repolock prints and exits
// with. Each is one error, with at most one hint, or one object with --json, and changes nothing. With
// -update the file is written anew: read it as a person who has made the mistake.
func TestMistakes(t *testing.T) {
	const golden = "testdata/mistakes.txt"
	file, err := os.ReadFile(golden)
	assert.OK(t, err)
	path, err := filepath.Abs(golden)
	assert.OK(t, err)
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("REPOLOCK_CONFIG", "") // none
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("HOME", dir)
	bin := t.TempDir() // borg and restic might not be installed
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	write(t, filepath.Join(dir, "repo", "data"), "a backup")
	write(t, filepath.Join(dir, "broken", "index", "lock.shared", "x"), "not JSON")
	written := time.Now().Add(-73 * time.Hour) // its age is printed
	assert.OK(t, os.Chtimes(filepath.Join(dir, "broken", "index", "lock.shared", "x"), written, written))
	write(t, filepath.Join(dir, "text"), "no program, and no log")
	write(t, filepath.Join(dir, "text.gz"), "\x1f\x8b")
	for name, begins := range map[string]string{
		dir + "/crlf": "#!/bin/sh\r\n", dir + "/badint": "#!/nowhere/python\n", dir + "/noshebang": "echo hello\n",
		bin + "/borg": "#!/bin/sh\n", bin + "/restic": "#!/bin/sh\n",
	} {
		write(t, name, begins)
		assert.OK(t, os.Chmod(name, 0o755))
	}
	write(t, filepath.Join(dir, "bad.toml"), "repo = \"nowhere\"\n[defaults]\nttl = \"60\"\n")
	write(t, filepath.Join(dir, "bad-once.toml"), "[defaults]\nonce-per = \"12h\"\n")
	write(t, filepath.Join(dir, "lists.toml"), fmt.Sprintf("[repositories.prod]\nurl = '%s/repo'\n[repositories]\nhome.url = '/h'\nnas.url = '/n'\nold.url = '/o'\n", dir))
	write(t, filepath.Join(dir, "default.toml"), fmt.Sprintf("repo = '%s/repo'\n", dir))
	write(t, filepath.Join(dir, "held.toml"), "[repositories.a]\nurl = '/x'\nif-held = 'no'\n")
	for _, name := range []string{"file", "asfile/.beads", "b/.beads/db", "locks/x", "my repo/x"} {
		write(t, filepath.Join(dir, filepath.FromSlash(name)), "x")
	}
	assert.OK(t, os.Mkdir(filepath.Join(dir, "open"), 0o755))
	before := tree(t, dir)
	var got strings.Builder
	said := map[string]bool{}
	for line := range strings.Lines(string(file)) {
		variable, command, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(line, "$ "), "\n"), "repolock")
		ok = ok && strings.HasPrefix(line, "$ ")
		if !ok {
			if strings.HasPrefix(line, "#") {
				fmt.Fprintf(&got, "\n%s", line)
			}
			continue
		}
		assert.That(t, !said[line], "twice: %s", line)
		said[line] = true
		args, err := shellwords.Parse(command)
		assert.Need(t, err == nil, "%s: %v", command, err)
		name, value, _ := strings.Cut(strings.TrimSpace(variable), "=")
		if name != "" {
			t.Setenv(name, value)
		}
		code, out, stderr := call(args...)
		assert.That(t, code != 0, "repolock%s: exits with 0", command)
		for l := range strings.Lines(stderr) {
			assert.That(t, len(strings.ReplaceAll(l, dir, "DIR")) <= 300, "repolock%s: a line of %d characters: %s", command, len(l), l)
		}
		fmt.Fprintf(&got, "\n$ %srepolock%s\n%s%s  exit code %d\n", variable, command, out, stderr, code)
		if len(args) > 0 && args[0] != "--json" {
			isOneError(t, false, stderr, "")
			hinted := strings.Contains(stderr, "\nrepolock: hint: ") || len(args) == 0
			assert.That(t, hinted, "repolock%s: no hint: %s", command, stderr)
			again, out, stderr := call(append([]string{"--json"}, args...)...)
			assert.That(t, again == code && out == "", "repolock --json%s: exit code %d, and without --json %d: %s", command, again, code, out)
			isOneError(t, true, stderr, "")
		}
		os.Unsetenv(name) // until the next line; t.Setenv restores it at the end
	}
	assert.Equal(t, cmp.Diff(before, tree(t, dir)), "", "files changed")
	assert.That(t, len(said) >= 120, "%d mistakes, and not 120", len(said))
	text := strings.TrimPrefix(strings.ReplaceAll(got.String(), dir, "DIR"), "\n")
	if *update {
		assert.OK(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	assert.Equal(t, cmp.Diff(string(file), text), "", "-%s +what is printed", golden)
}

// badInputs are command lines that testdata/mistakes.txt can't have: of odd characters, of great length, or on locks that
// can't be read.
var badInputs = []struct {
	name string
	args string // TMP stands for a directory, LONG for 5000 characters, and a trailing -- for a command that mustn't run
	lock string // the body of a shared lock of TMP/repo, if not empty
	code int
	says string
}{
	{"control characters", "\x1b[2J\n", "", 64, "isn't a command"},
	{"name too long", "-r TMP/repo --name LONG backup --", "", 64, "lock name"},
	{"operation too long", "-r TMP/repo run --shared --operation LONG --", "", 64, "operation"},
	{"metadata too large", "-r TMP/repo backup --metadata k=LONG --", "", 64, "metadata"},
	{"break-lock without terminal", "-r TMP/repo break-lock", `"expires_at":"2026-03-07T09:01:00Z"`, 64, "--yes"},
	{"path too long", "-r /LONG backup --", "", 66, "its name is too long"},
	{"NUL in path", "-r a\x00b backup --", "", 64, "URL"},
	// Lock bodies that keep a prune out.
	{"blank body", "-r TMP/repo prune --", " ", 75, "unreadable shared lock"},
	{"10 MiB body", "-r TMP/repo prune --", "LARGE", 75, "damaged: larger than 64 KiB"},
	{"truncated body", "-r TMP/repo prune --", `{"operation":"back`, 75, "unreadable shared lock"},
	{"wrong types", "-r TMP/repo prune --", `{"operation":1,"expires_at":true}`, 75, "unreadable shared lock"},
	{"no times", "-r TMP/repo prune --", `{"operation":"x","holder":"y"}`, 75, "expires_at"},
	{"control characters in body", "-r TMP/repo prune --", `"expires_at":"9999-12-31T23:59:59Z","state":"\u001b"`, 75, "by backup on h (pid 1)"},
	{"year 9999", "-r TMP/repo prune --", `"expires_at":"9999-12-31T23:59:59Z"`, 75, "(pid 1)"},
	{"year 10000", "-r TMP/repo prune --", `"expires_at":"10000-01-01T00:00:00Z"`, 75, "expires_at"},
	{"encrypted body", "-r TMP/repo prune --", "\x01\x02\x03", 75, "unknown"},
	{"negative ttl", "-r TMP/repo prune --", `"expires_at":"9999-12-31T23:59:59Z","ttl_seconds":-5`, 75, "ttl_seconds"},
	{"zstd garbage", "-r TMP/repo prune --", "\x28\xb5\x2f\xfd garbage", 75, "unreadable shared lock"},
	// The locks of other systems: each package in locking has the URLs that it refuses.
	{"very long kind", "run --also LONG --", "", 64, "no such kind of lock"},
	{"very long directory", "run --also beads:/LONG --", "", 74, "stat /"},
	{"very long key", "run --also redis://host?key=LONG --", "", 64, "key"},
	{"very long name", "run --also tower-fleet:TMP/LONG --", "", 64, "lock name"},
	{"NUL", "run --also beads:a\x00b --", "", 64, "printable"},
	{"newline", "run --also tower-fleet:TMP/a\nb/c --", "", 64, "printable"},
	{"escape", "run --also \x1b[2J --", "", 64, "no such kind"},
}

// TestBadInput: each wrong input is one error with the right exit code, in text and in JSON, and shows
// no secret. Nothing is lost, deleted, left behind or run.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, c := range badInputs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "repo", "data"), "x")
			if strings.HasPrefix(c.lock, `"`) {
				c.lock = `{"operation":"backup","holder":"h (pid 1)","acquired_at":"2026-03-07T09:00:00Z",` + c.lock + `}`
			}
			if c.lock == "LARGE" { // not in the table, which each start of this binary would fill
				c.lock = strings.Repeat("x", 10<<20)
			}
			if c.lock != "" {
				write(t, filepath.Join(dir, "repo", "index", "lock.shared", "x"), c.lock)
			}
			before := tree(t, dir)
			args := strings.Split(strings.NewReplacer("TMP", dir, "LONG", strings.Repeat("x", 5000)).Replace(c.args), " ")
			if args[len(args)-1] == "--" {
				args = append(args, "touch", filepath.Join(dir, "ran"))
			}
			for _, json := range []bool{false, true} {
				if json {
					args = append([]string{"--json"}, args...)
				}
				code, stdout, stderr := callHere(args...)
				assert.That(t, code == c.code && stdout == "", "exit code %d, want %d; on stdout: %q", code, c.code, stdout)
				isOneError(t, json, stderr, c.says)
			}
			assert.Equal(t, cmp.Diff(before, tree(t, dir)), "", "files changed")
		})
	}
}

// isOneError checks that stderr has one error with at most one hint, or one object, and no secret.
func isOneError(t *testing.T, isJSON bool, stderr, says string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	assert.That(t, strings.Contains(lines[0], says), "doesn't say %q: %s", says, stderr)
	if isJSON {
		assert.That(t, len(lines) == 1 && strings.HasPrefix(lines[0], `{"error":`) && json.Valid([]byte(stderr)), "is not one object: %s", stderr)
	} else if !strings.HasPrefix(lines[0], "repolock: error: ") || len(lines) > 2 || len(lines) == 2 && !strings.HasPrefix(lines[1], "repolock: hint: ") {
		t.Errorf("is not one error with its hint: %s", stderr)
	}
	assert.That(t, len(lines[0]) <= 8000 && !strings.Contains(stderr, "goroutine") && !strings.Contains(stderr, "secret"),
		"too long, a stack, or a secret: %.500s", stderr)
	assert.That(t, !strings.ContainsFunc(strings.ReplaceAll(stderr, "\n", ""), func(r rune) bool { return r < ' ' }),
		"control characters: %q", stderr)
}

// TestEmptyValue: every flag but --config refuses an empty value. An empty variable of the environment is as good as an
// unset one.
func TestEmptyValue(t *testing.T) {
	t.Setenv("REPOLOCK_CONFIG", "")
	t.Setenv("REPOLOCK_AUDIT", "")
	t.Setenv("REPOLOCK_JOB", "")
	dir := t.TempDir()
	app := reader.Model()
	for _, node := range app.Children {
		if node.Hidden {
			continue
		}
		for _, f := range append(cli.Visible(node.Flags), cli.Visible(app.Flags)...) {
			if f.IsBool() || f.Name == "config" {
				continue
			}
			args := []string{node.Name, "--" + f.Name + "="}
			for _, p := range node.Positional {
				switch {
				case p.Passthrough:
					args = append(args, "--", "touch", filepath.Join(dir, "ran"))
				case p.Enum != "":
					args = append(args, p.EnumSlice()[0])
				default:
					args = append(args, "x")
				}
			}
			code, _, stderr := call(args...)
			assert.That(t, code == fault.ExitUsage && strings.Contains(stderr, "--"+f.Name+": its value is empty\n"),
				"%q: exit code %d: %s", args, code, stderr)
		}
	}
	_, err := os.Stat(filepath.Join(dir, "ran"))
	assert.That(t, err != nil, "it ran")
	// A process of its own: touch takes its place.
	out, err := exec.Command("repolock", "-r", dir, "--config=", "run", "--no-lock", "--", "touch", filepath.Join(dir, "ran")).CombinedOutput()
	assert.That(t, err == nil, "%v: %s", err, out)
}

// TestParse: a parser for the words of a line finds the same command and flags as a parser for all commands. It takes
// no flag's value for a command, and keeps bytes that aren't UTF-8.
func TestParse(t *testing.T) {
	t.Setenv("REPOLOCK_REPO", "")
	for _, c := range []struct {
		selects string // "": the line isn't accepted
		args    []string
	}{
		{"backup", []string{"backup", "--", "true"}},
		{"run", []string{"-r", "x", "--json", "run", "--shared", "--ttl=20s", "--metadata", "A=b", "--", "sh", "-c", "status"}},
		{"prune", []string{"-qr", "x", "prune", "--wait", "forever", "restic", "--help"}},
		{"acquire", []string{"acquire", "--exclusive", "--for-pid", "none"}},
		{"doctor", []string{"doctor", "x", "--also", "a,b", "--also", "c"}},
		{"status", []string{"--name", "x", "status", "-r", "y"}},
		{"complete", []string{"complete", "--", "-r", ""}},
		{"run", []string{"-r", "backup", "run", "--no-lock", "--", "true"}},
		{"backup", []string{"--name=run", "--config=", "backup", "--wait=1s", "--", "x"}},
		{"backup", []string{"--", "backup", "--", "true"}},
		{"", []string{"breaklock"}},
		{"", []string{"status", "--foo"}},
		{"", []string{"run", "--on-lost", "hope", "--", "x"}},
		{"", nil},
	} {
		p, err := reader.Parse(c.args, io.Discard, io.Discard)
		if p.Selected == nil || c.selects == "" {
			assert.That(t, err != nil && c.selects == "", "%q: %v", c.args, err)
			continue
		}
		whole := reader.NewParser(&cli.Globals{}, append(slices.Clone(c.args), reader.Names()...))
		k, err := whole.Parse(c.args)
		assert.That(t, err == nil && p.Selected.Name == c.selects && k.Selected().Name == c.selects, "%q: %s, %v", c.args, p.Selected.Name, err)
		got, want := p.Selected.Target.Interface(), k.Selected().Target.Interface()
		assert.That(t, reflect.DeepEqual(got, want), "%q: %+v, and whole %+v", c.args, got, want)
	}
	p, err := reader.Parse([]string{"-r", "./r\xff", "backup", "--audit=a\xff", "--", "c\xff"}, io.Discard, io.Discard)
	assert.OK(t, err)
	c := p.Selected.Target.Interface().(wrapCmd)
	assert.That(t, p.Repo == "./r\xff" && p.Typed["repo"] == p.Repo && c.Audit == "a\xff" && c.Command[1] == "c\xff", "%q, %+v", p.Repo, c)
}

// TestLongLines: a line of any length has the values and the mistakes that it has if kong parses it at once.
func TestLongLines(t *testing.T) {
	t.Setenv("REPOLOCK_REPO", "")
	fill := func(n int, words ...string) (all []string) {
		for len(all) < n {
			all = append(all, words...)
		}
		return all[:n]
	}
	outcome := func(args []string, command *kong.Node, err error) string {
		if err != nil {
			return reader.Mistaken(err, args).Error()
		}
		return fmt.Sprintf("%s: %+v", command.Name, command.Target.Interface())
	}
	for n := range 80 {
		for _, args := range [][]string{
			slices.Concat([]string{"run"}, fill(n, "-q", "--metadata", "a=b"), []string{"--wait", "1s", "-qv", "--also=x", "--", "c"}, fill(n, "--", "-x", "d")),
			slices.Concat(fill(n, "-q"), []string{"-r", "status", "backup", "--wait", "1s", "c"}, fill(99, "--", "-x", "d")),
			slices.Concat(fill(n, "-q"), []string{"backup", "--bogus", "--"}, fill(n, "c")),
			slices.Concat([]string{"backup"}, fill(n, "-q"), []string{"--wait", "-5s", "c"}),
			slices.Concat([]string{"prune"}, fill(n, "-q"), []string{"--wait"}),
			slices.Concat([]string{"status"}, fill(n, "-q"), []string{"--bogus"}, fill(9, "--name", "n")),
			slices.Concat([]string{"status"}, fill(n, "-q"), []string{"-qxv"}, fill(n, "c")),
			slices.Concat(fill(n, "-q"), []string{"status", "c"}, fill(n, "--")),
			slices.Concat([]string{"history", "--"}, fill(n, "-x")),
			slices.Concat([]string{"history"}, fill(n, "-q"), []string{"--", "-f"}),
			slices.Concat([]string{"history"}, fill(n, "-q"), []string{"--", "f", "-q"}),
			slices.Concat([]string{"break-lock"}, fill(n, "-q"), []string{"0123abcd"}, fill(n, "c")),
			slices.Concat(fill(n, "-q"), []string{"restic"}, fill(n, "-x", "c"), []string{"--", "d"}),
			slices.Concat(fill(n, "-q"), []string{"--"}, fill(n, "c")),
			slices.Concat([]string{"complete", "--"}, fill(n, "-r", "x")),
		} {
			p, err := reader.Parse(args, io.Discard, io.Discard)
			got := outcome(args, p.Selected, err)
			var command *kong.Node
			k, err := reader.NewParser(&cli.Globals{}, args).Parse(args)
			if err == nil {
				command = k.Selected()
			}
			assert.Equal(t, got, outcome(args, command, err), "%d: %q", n, args)
		}
	}
}

// longLines are command lines with n words of each kind.
func longLines(n int) map[string][]string {
	words := func(word string) []string { return slices.Repeat([]string{word}, n) }
	return map[string][]string{
		"after dashes":     append([]string{"-r", "x", "backup", "--"}, words("file")...),
		"without dashes":   append([]string{"-r", "x", "backup", "rm"}, words("file")...),
		"nested":           append([]string{"-r", "x", "run", "--shared", "--", "repolock", "prune", "--"}, words("--also=x")...),
		"also":             slices.Concat([]string{"run", "--shared"}, words("--also=x"), []string{"--", "true"}),
		"unknown flag":     append([]string{"backup", "--bogus", "--"}, words("file")...),
		"unknown command":  words("file"),
		"too many":         append([]string{"status"}, words("file")...),
		"no command":       append([]string{"--"}, words("file")...),
		"the name's value": append([]string{"--name", "status"}, words("-q")...),
		"completion":       append([]string{"complete", "--", "backup", "rm"}, words("file")...),
	}
}

// TestLinear: a line of 16,000 words takes no more memory for each word than a short one does. A parser that copies the
// rest of the line at each word takes 300 KB.
func TestLinear(t *testing.T) {
	const n = 16000
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	for name, args := range longLines(n) {
		before := allocated()
		p, err := reader.Parse(args, io.Discard, io.Discard)
		if err != nil {
			_ = reader.Mistaken(err, args)
		} else if c, ok := p.Selected.Target.Interface().(completeCmd); ok {
			_ = completions(joined(c.Words[1:]))
		}
		each := (allocated() - before) / n
		t.Logf("%s: %d bytes a word", name, each)
		assert.That(t, each < 16<<10, "%s: %d bytes a word", name, each)
	}
}

// BenchmarkParse reads lines of 16 to 120,000 words.
func BenchmarkParse(b *testing.B) {
	for _, n := range []int{16, 16000, 120000} {
		for _, name := range []string{"after dashes", "without dashes", "also"} {
			args := longLines(n)[name]
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					_, err := reader.Parse(args, io.Discard, io.Discard)
					assert.OK(b, err)
				}
			})
		}
	}
}

// TestDays: the time of a flag can have days.
func TestDays(t *testing.T) {
	p, err := reader.Parse([]string{"backup", "--wait", "1d", "--ttl", "1d", "--", "x"}, io.Discard, io.Discard)
	assert.OK(t, err)
	c := p.Selected.Target.Interface().(wrapCmd)
	assert.That(t, c.Wait == cli.WaitTime(24*time.Hour) && c.TTL == 24*time.Hour, "%v, %v", c.Wait, c.TTL)
}

// TestUnheeded: a variable that is named as a flag, and that repolock doesn't read, is said to have no effect. A variable
// that repolock reads or sets, and one of its tests, isn't mentioned. The commands that lock name all others in one line.
func TestUnheeded(t *testing.T) {
	for v, want := range map[string]string{
		"REPOLOCK_WAIT": "the flag is --wait", "REPOLOCK_IF_HELD": "the flag is --if-held", "REPOLOCK_LOCK_WAIT": "the flag is --wait",
		"REPOLOCK_REPOSITORY": "the variable is REPOLOCK_REPO", "REPOLOCK_QUIET": "the flag is --quiet",
		"REPOLOCK_NAME": "the flag is --name", "REPOLOCK_URL": "the variable is REPOLOCK_REPO",
		"REPOLOCK_HOME": "", "REPOLOCK_FENCE": "", "REPOLOCK_ID": "", "REPOLOCK_OUTER": "", "REPOLOCK_TOKEN": "", "REPOLOCK_JOB": "",
		"REPOLOCK_CONFIG": "", "REPOLOCK_REDIS_PASSWORD": "", "WAIT": "",
	} {
		says := reader.Unheeded([]string{v + "=secret"}, false)
		if want != "" {
			want = v + " isn't a variable of repolock, and has no effect; " + want
		}
		assert.Equal(t, strings.Join(says, "\n"), want, v)
	}
	says := reader.Unheeded([]string{"REPOLOCK_OUTER=x", "REPOLOCK_NAME=n", "REPOLOCK_E2E_X=", "REPOLOCK_RPEO=", "REPOLOCK_TLL=", "REPOLOCK_PASSWORD=", "REPOLOCK_HOME="}, true)
	assert.Equal(t, strings.Join(says, "\n"), "repolock doesn't read REPOLOCK_RPEO (did you mean REPOLOCK_REPO?), "+
		"REPOLOCK_TLL (did you mean the flag --ttl?), REPOLOCK_PASSWORD and 1 more; see repolock help env")
	t.Setenv("REPOLOCK_RPEO", "x")
	t.Setenv("REPOLOCK_WAIT", "5m")
	_, _, stderr := call("-r", t.TempDir(), "status")
	assert.Equal(t, stderr, "repolock: warning: REPOLOCK_WAIT isn't a variable of repolock, and has no effect; the flag is --wait\n")
	for _, args := range [][]string{{"-r", t.TempDir(), "status", "-q"}, {"version"}, {"complete", "--", ""}} {
		_, _, stderr := call(args...)
		assert.Equal(t, stderr, "", args)
	}
	_, _, stderr = call("-r", t.TempDir(), "backup", "--", "true")
	assert.That(t, strings.Count(stderr, "\n") == 2 && strings.Contains(stderr, "REPOLOCK_RPEO (did you mean"), "%s", stderr)
}

// TestVersion: the version has the commit and its day, also if only the version that Go has made of them is known.
func TestVersion(t *testing.T) {
	b := build{Version: "(devel)", Go: "go1.26.8", System: "linux/amd64", Commit: "45cc264a11112222", Time: "2026-11-25T09:00:00Z", Modified: true}
	assert.Equal(t, b.String(), "repolock (devel), commit 45cc264a of 2026-11-25 (modified)\ngo1.26.8, linux/amd64\n")
	for version, want := range map[string]string{
		"v0.0.0-20261125090000-45cc264a1111": "45cc264a1111 2026-11-25T09:00:00Z", "v1.2.4-0.20261125090000-45cc264a1111+dirty": "45cc264a1111 2026-11-25T09:00:00Z",
		"v1.2.3": " ", "(devel)": " ", "v0.0.0-20261399090000-45cc264a1111": " ",
	} {
		commit, at := pseudo(version)
		assert.Equal(t, commit+" "+at, want, version)
	}
}
