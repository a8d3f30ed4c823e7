//go:build unix

package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/docblocks"
	"github.com/repolock/repolock/internal/test/rounds"
)

// claimed maps pages, and after a # sections, to the tests that run their sh and crontab blocks. TestDocs runs
// the blocks of all other pages.
var claimed = map[string]string{
	"README.md#repolock":              "TestReadme",
	"README.md#On a directory":        "TestReadme",
	"README.md#On S3":                 "TestPrograms",
	"docs/also.md":                    "TestAlsoPage",
	"docs/borg.md":                    "TestBorg",
	"docs/cloudstic.md":               "TestCloudstic",
	"docs/configuration.md":           "TestConfigurationPage",
	"docs/faq.md":                     "TestFAQ",
	"docs/kopia.md":                   "TestKopia",
	"docs/also/beads.md":              "TestBeadsPage",
	"docs/also/postgres.md":           "TestPostgresPage",
	"docs/also/redis.md":              "TestRedisPage",
	"docs/also/tower-fleet.md":        "TestTowerFleetPage",
	"docs/monitoring.md":              "TestMetricsPage",
	"docs/nas.md":                     "TestNASPage",
	"docs/sftp.md":                    "TestSFTPPage",
	"docs/packages.md":                "TestPackagesDocument",
	"docs/rclone.md":                  "TestRclone",
	"docs/restic.md":                  "TestRestic",
	"docs/scripts.md":                 "TestScriptsDoc",
	"docs/systemd.md":                 "TestSystemd",
	"docs/evidence/torture.md":        "TestTortureDoc",
	"docs/evidence/torture-others.md": "TestOthersPage",
	"docs/two-repositories.md":        "TestTwoRepositoriesPage",
}

// elsewhere are the commands that don't run unchanged, nor here. A test, or a command of
// .ci/run that does the same, runs each of them.
var elsewhere = map[string]string{
	"sh e2e/local.sh":                      "TestLocalScript",
	"make soak":                            "make histories",          // the same without an end
	"make bench":                           "make bench BENCH=-short", // six minutes
	"make bench-queue":                     "make bench-queue BENCH=-short",
	"make bench-start":                     "make bench-start BENCH=-short",
	"make bench-locks":                     "make bench-locks BENCH=-benchtime=10x",
	"make bench-disk":                      "make bench-disk BENCH='-short -benchtime=10x'",
	"make bench-sftp":                      "make bench-sftp BENCH=-short",
	"make demo-svg":                        "TestDemo",
	"make quirks":                          "TestQuirks",                            // for a second each, instead of 60
	"make real STORE=URL":                  "TestReal",                              // on URLs of this machine
	"sh spec/run.sh NAME":                  "sh spec/run.sh original-two-exclusive", // NAME stands for any name
	"make servers SERVERS=openssh":         "make servers",
	"make ci":                              notHere,
	"make proof":                           notHere,
	"make beside-cloudstic CLOUDSTIC=PATH": notHere,
	"make cloudstic CLOUDSTIC=PATH":        notHere,
	"docker tag repolock-restic registry.example.org/repolock-restic:1": notHere,
	"docker push registry.example.org/repolock-restic:1":                notHere,
	"kubectl create secret generic repolock --from-env-file=job.env":    notHere,
	"kubectl apply -f packaging/kubernetes/cronjob.yaml":                notHere,
	"kubectl create job --from=cronjob/repolock-backup try":             notHere,

	"docker build -t repolock-restic -f packaging/container/restic.Dockerfile packaging/container": "TestPackagesDocument",
}

// notHere: no test can run it, because it needs a cluster, a registry or a copy of another program's
// repository, or runs the tests.
const notHere = "not here"

// TestDocs: each command of the README, of docs/ and of examples/ is run: here, or by a test that claims
// the page, or by .ci/run.
func TestDocs(t *testing.T) {
	t.Parallel()
	names := []string{"README.md"}
	for _, dir := range []string{"docs", "examples"} {
		err := fs.WalkDir(os.DirFS(".."), dir, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".md") {
				names = append(names, path)
			}
			return err
		})
		assert.OK(t, err)
	}
	ci, done := newCI(t), map[string]bool{}
	for name, test := range claimed {
		name, section, _ := strings.Cut(name, "#")
		page, err := docblocks.Read("../" + name)
		if section != "" {
			page, err = docblocks.ReadSection("../"+name, section)
		}
		assert.That(t, err == nil, "%s claims it: %v", test, err)
		for _, line := range page.Lines() {
			done[bare(line)] = true
		}
		assert.Equal(t, ci.lacks(test, filepath.Base(name)), "", name)
	}
	used := map[string]bool{}
	for _, name := range names {
		page, err := docblocks.Read("../" + name)
		assert.OK(t, err)
		for command := range elsewhere {
			used[command] = used[command] || slices.Contains(page.Inline, command) || slices.ContainsFunc(page.Lines(), func(l string) bool { return bare(l) == command })
		}
		t.Run(name, func(t *testing.T) { docs{newSite(t), ci, done, page, name}.run() })
	}
	for command := range elsewhere {
		assert.That(t, used[command], "no page says %q", command)
	}
}

// docs is one page.
type docs struct {
	*site
	ci   *ci
	done map[string]bool // commands that the tests of claimed pages run
	page docblocks.Page
	name string
}

func (d docs) run() {
	// A reader looks for commands in blocks that are marked as such.
	for _, line := range append(d.page.Indented, strings.Split(strings.Join(d.page.Fenced[""], ""), "\n")...) {
		assert.That(d.t, !program.MatchString(line), "%q is a command: put it into a block of ```sh", line)
	}
	var commands []string
	if claimed[d.name] == "" {
		for _, line := range d.page.Lines() {
			commands = append(commands, bare(line))
		}
		assert.That(d.t, len(d.page.Crontab()) == 0, "no test claims its crontab")
	}
	for _, text := range d.page.Inline {
		if ours.MatchString(text) && !verb.MatchString(text) {
			commands = append(commands, text)
		}
	}
	assert.That(d.t, d.name != "README.md" || len(commands) >= 10, "only %q are found", commands)
	for _, command := range commands {
		switch by := elsewhere[command]; {
		case d.done[command] || by == notHere:
		case strings.HasPrefix(by, "Test"):
			assert.Equal(d.t, d.ci.lacks(by, ""), "", command)
		case by != "":
			assert.That(d.t, d.ci.runs(d.t, by), "%s: .ci/run doesn't run %q", command, by)
		case strings.HasPrefix(command, "repolock "):
			d.repolock(command)
		case d.ci.runs(d.t, command):
		case strings.HasPrefix(command, "go "):
			d.t.Run(command, func(t *testing.T) {
				rounds.Long(t, "it builds and measures")
				own := d
				own.site = &site{t: t, dir: d.dir, repo: d.repo}
				own.exec("..", "nice "+command) // other tests are under way
			})
		default:
			d.t.Errorf("no test runs %q: claim the page, or let .ci/run do it", command)
		}
	}
	d.nothingLeft()
}

var (
	// ours matches our commands in any text, program commands that begin a line, and verb a command of go without what it
	// works on.
	ours    = regexp.MustCompile(`^(repolock|make|go|sh) [^=]`)
	verb    = regexp.MustCompile(`^go \w+$`)
	program = regexp.MustCompile(`^\s*(\$ )?(repolock|make|go|sh|bash|restic|rclone|borg|kopia|cloudstic|spin|apt-get|docker|kubectl|systemctl|sudo|crontab|git|curl|export) \S`)
)

// bare returns a line without its comment.
func bare(line string) string {
	line, _, _ = strings.Cut(line, " # ")
	return strings.Join(strings.Fields(line), " ")
}

// repolock runs a repolock, with a stand-in for its command, and with arguments that the text
// leaves out.
func (d docs) repolock(command string) {
	ran := false
	has := func(s string) bool { return strings.Contains(command+" ", s) }
	if strings.HasPrefix(command+" ", "repolock -- ") || strings.HasPrefix(command, "repolock --wait ") {
		d.write("bin/restic", "#!/bin/sh\necho ran \"$0\" $REPOLOCK_MODE\n")
		out := d.exec(d.dir, "repolock -- restic backup")
		assert.That(d.t, strings.Contains(out, "ran "), "%s", out)
		return
	}
	switch {
	case has(" backup ") || has(" restore ") || has(" prune ") || has(" run "):
		ran = true
		if has(" run ") && !has("--shared") && !has("--exclusive") && !has("--no-lock") {
			command += " --shared"
		}
		if has(" run ") && !has("--operation") && !has("--no-lock") {
			command = strings.Replace(command, " run ", " run --operation NAME ", 1)
		}
		if !has(" -- ") {
			command += " --"
		}
		if strings.HasSuffix(command, " --") {
			command += " CMD"
		}
		_, inner, _ := strings.Cut(command, " -- ")
		inner, _, _ = strings.Cut(inner, " ")
		if !strings.Contains(inner, "/") {
			inner = "bin/" + inner
		}
		d.write(inner, "#!/bin/sh\necho ran \"$0\" $REPOLOCK_MODE\n")
	case has(" break-lock "):
		command = strings.Replace(command, "break-lock", "break-lock --yes", 1)
	case has(" acquire "):
		command = "REPOLOCK_TOKEN=$(" + command + " --shared --for-pid $$) && export REPOLOCK_TOKEN && repolock check && repolock release"
	}
	out := d.exec(d.dir, command)
	assert.That(d.t, !ran || strings.Contains(out, "ran "), "%s didn't run its command:\n%s", command, out)
}

// exec runs a command, which must succeed.
func (d docs) exec(dir, command string) string {
	d.t.Helper()
	return in(d.t, dir, command, "REPOLOCK_REPO="+d.repo, "REPOLOCK_AUDIT="+d.path("FILE"), "TMPDIR="+d.dir,
		"REPOLOCK_CONFIG="+d.config(), "GOBIN="+d.path("bin"), "PATH="+d.path("bin")+":"+bin+":"+os.Getenv("PATH"))
}

// script runs a script in a directory, in a process group that ends within an hour. A cleanup can call it: the
// test's own context has ended by then.
func script(t testing.TB, dir, text string, env []string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Hour)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", text)
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second // for processes that still have its output open
	raw, err := cmd.CombinedOutput()
	return string(raw), err
}

// in runs a script in a directory, which must succeed, and returns its output.
func in(t testing.TB, dir, text string, env ...string) string {
	t.Helper()
	out, err := script(t, dir, text, append(os.Environ(), env...))
	assert.Need(t, err == nil, "%s: %v\n%s", text, err, out)
	return out
}

var urlLine = regexp.MustCompile(`(?m)^url = .*`)

// config returns the page's example of a configuration file, with a directory in place of a
// missing one; "" if it has none.
func (d docs) config() string {
	example := strings.Join(d.page.Fenced["toml"], "")
	if example == "" {
		return ""
	}
	d.write("config.toml", urlLine.ReplaceAllLiteralString(example, `url = "`+d.repo+`"`))
	return d.path("config.toml")
}

// ci is what .ci/run and .ci/proof run.
type ci struct {
	lines []string          // of these scripts, and of make for them
	tests map[string]string // the file of each test, by name
}

// ofStep matches the part of a line before a step's command.
var ofStep = regexp.MustCompile(`^step ".*" \d+ `)

func newCI(t *testing.T) *ci {
	t.Helper()
	c := &ci{tests: testFiles(".", "../cmd/repolock")}
	for _, script := range []string{"../.ci/run", "../.ci/proof"} {
		for line := range strings.Lines(read(t, script)) {
			line = ofStep.ReplaceAllString(strings.TrimSpace(line), "")
			c.lines = append(c.lines, line)
			if targets, is := strings.CutPrefix(line, "make "); is && !strings.HasPrefix(targets, "proof") {
				c.lines = append(c.lines, recipe(t, targets)...)
			}
		}
	}
	return c
}

// recipe returns the lines that make would execute.
func recipe(t *testing.T, targets string) []string {
	t.Helper()
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS") })
	out, err := script(t, "..", "make --no-print-directory -n "+targets, env)
	assert.Need(t, err == nil, "make %s: %v\n%s", targets, err, out)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return lines
}

// runs reports whether .ci/run does all that a command does.
func (c *ci) runs(t *testing.T, command string) bool {
	t.Helper()
	if targets, is := strings.CutPrefix(command, "make "); is {
		for _, l := range recipe(t, targets) {
			if !slices.Contains(c.lines, l) {
				return false
			}
		}
		return true
	}
	return slices.Contains(c.lines, command)
}

// lacks returns the reason why no test of this name reads a page, or "". TestRuns checks that each runs.
func (c *ci) lacks(name, page string) string {
	if text := c.tests[name]; !strings.Contains(text, page+`"`) {
		return fmt.Sprintf("the file of %s doesn't name %q", name, page)
	}
	return ""
}

// page is a page's script, and the home that it is run in.
type page struct {
	*site
	docblocks.Page
	at string // the words after repolock status that name the place of the lock
}

// newPage returns a page of docs/, and a home with something to back up.
func newPage(t *testing.T, name string) *page {
	t.Helper()
	text, err := docblocks.Read("../docs/" + name)
	assert.OK(t, err)
	t.Parallel()
	p := &page{&site{t: t, dir: t.TempDir()}, text, ""}
	for name, text := range map[string]string{
		"documents/draft":  "a draft\n",
		"documents/letter": strings.Repeat("a letter\n", 1000),
		"pictures/cat":     strings.Repeat("a cat\n", 1000),
		"password":         "correct horse battery staple\n",
	} {
		p.write(name, text)
	}
	return p
}

// sh runs a script as cron would, with an almost empty environment.
func (p *page) sh(text string) string {
	p.t.Helper()
	env := []string{"HOME=" + p.dir, "PATH=" + p.path("bin") + ":" + bin + ":/usr/local/bin:/usr/bin:/bin", "TMPDIR=" + p.dir, "LC_ALL=C.UTF-8"}
	out, err := script(p.t, p.dir, text, append(env, p.env...))
	assert.Need(p.t, err == nil, "%v\n%s\n%s", err, text, out)
	return out
}

// contains checks that the output has all of these texts.
func (p *page) contains(out string, wants ...string) {
	p.t.Helper()
	for _, want := range wants {
		assert.That(p.t, strings.Contains(out, want), "%q isn't in:\n%s", want, out)
	}
}

// unlocked checks that no lock has left anything.
func (p *page) unlocked() {
	p.t.Helper()
	p.contains(p.sh(`. "$HOME/backup.env"; repolock status `+p.at), "no locks")
}

// slow matches what repolock prints in a pipe after seconds without an answer, as on a busy machine.
var slow = regexp.MustCompile(`(?m)^repolock: (acquiring the locks?: |retrying for ).*\n`)

// each runs the blocks of a page one by one. What each prints must match.
func (p *page) each(blocks []string, wants ...string) {
	p.t.Helper()
	assert.Need(p.t, len(blocks) == len(wants), "%d blocks, and %d are tested", len(blocks), len(wants))
	for i, want := range wants {
		out := slow.ReplaceAllString(p.sh(blocks[i]), "")
		assert.That(p.t, regexp.MustCompile("(?s)"+want).MatchString(out), "%q isn't in the output of\n%s\n%s", want, blocks[i], out)
	}
}

// program puts a program into the PATH of the page.
func (p *page) program(name, script string) {
	p.t.Helper()
	p.write("bin/"+name, "#!/bin/sh\n"+script+"\n")
}

// alone returns a page whose commands have no repository by default.
func alone(t *testing.T, name string) *page {
	t.Helper()
	p := newPage(t, name)
	p.env = []string{"REPOLOCK_CONFIG="}
	return p
}

// with returns the same page with a default repository.
func (p *page) with(repo string) *page {
	p.t.Helper()
	p.mkdir(repo)
	site := *p.site
	site.env = append([]string{"REPOLOCK_REPO=" + p.path(repo)}, site.env...)
	return &page{&site, p.Page, p.at}
}

// These tests run the pages about locks of other systems that need no server.

func TestAlsoPage(t *testing.T) {
	p := alone(t, "also.md")
	p.program("restic", `echo "restic $* $REPOLOCK_MODE of $(echo $REPOLOCK_OUTER | wc -w) locks"`)
	blocks := p.Fenced["sh"]
	p.with("repo").each(blocks[:1], `restic prune exclusive of +3 locks\n`)
	p.each(blocks[1:], `^$`, `looked at tower-fleet:.*looked at beads:.*fit for locks.*nothing to break`, `^$`)
	// What the page says, without commands, of --settle, --force-lock, a refusal, and the two URLs of a named lock.
	p.each([]string{
		`repolock prune --also beads:"$HOME/project" --settle 2s -- true; repolock run --also tower-fleet:locks/nightly --force-lock -- true`,
		`repolock run --also tower-fleet:locks/nightly -- sh -c '
  unset REPOLOCK_OUTER
  repolock run --also tower-fleet:locks/weekly --also tower-fleet:locks/nightly -- true || echo "refused with $?"
  repolock run --also tower-fleet:locks/nightly --if-held skip -- true'`,
		`repolock run --exclusive --repo jobs --name nightly -- sh -c '
  unset REPOLOCK_OUTER REPOLOCK_REPO; repolock run --also repo:jobs#nightly -- true || echo "refused with $?"'`,
		`for c in status doctor "break-lock --yes"; do repolock $c --also repo:jobs#nightly; done`,
	},
		`^$`,
		`nightly is held by .*refused with 75\n.*skipped: .*nightly is held by `,
		`lock nightly of repository .* is held by .*refused with 75\n$`,
		`no locks.*this store is fit to hold locks.*nothing to break`)
	// And what docs/monitoring.md says of these locks.
	p.each([]string{"repolock run --also tower-fleet:locks/nightly --audit log --metrics-file metrics -- true; repolock history log"},
		`OUTCOME\n.*success\n$`)
	out := p.sh("cat log metrics")
	p.contains(out, `"lock_name":"nightly","lock_path":"`, `{"event":"lock_released","request_id":"req_`, `repolock_held{lock="nightly",`)
	assert.That(t, !strings.Contains(out, p.path("repo")), "the repository isn't that of the commands")
}

func TestTwoRepositoriesPage(t *testing.T) {
	p := alone(t, "two-repositories.md")
	p.each(p.Fenced["sh"], `(nothing but locks is in .*){2}`, `^$`, `^$`)
}

func TestBeadsPage(t *testing.T) {
	p := alone(t, "also/beads.md")
	blocks := p.Fenced["sh"]
	assert.Need(t, len(blocks) == 3, "%d blocks", len(blocks))
	dead, each, _ := strings.Cut(blocks[2], "\n")
	// The first block changes the directory for all.
	out := p.sh(blocks[0] + blocks[1] + `sh -c 'echo $$' >pid
cat >.beads/.exclusive-lock <<END
{"holder": "my-tool", "pid": $(cat pid), "hostname": "$(uname -n)", "started_at": "2025-10-25T12:00:00Z"}
END
` + dead + `
echo '{"holder": "vc-' >.beads/.exclusive-lock
repolock status --also beads:.beads || true
` + dead + "\n" + each)
	p.contains(out, `"holder": "repolock"`, "only bd v0.17.7 to v0.49.6 looks at the lock", "fit for locks, except for", "unreadable", "nothing to break", "deleted the exclusive lock of my-tool on ", "deleted the unreadable exclusive lock in beads:")
	assert.That(t, !p.exists("project/.beads/.exclusive-lock"), "a lock is left")
}

func TestTowerFleetPage(t *testing.T) {
	p := alone(t, "also/tower-fleet.md")
	const dir = "/var/lib/tower-fleet"
	for i, block := range p.Fenced["sh"] {
		assert.That(t, strings.Contains(block, dir), "%s isn't in %s", dir, block)
		p.Fenced["sh"][i] = strings.ReplaceAll(block, dir, p.path("tower-fleet"))
	}
	p.mkdir("tower-fleet")
	p.each(p.Fenced["sh"], `no locks\n.*looked at tower-fleet:`, `^$`, `nothing to break`)
	assert.Equal(t, p.sh("stat -c %a tower-fleet/locks; ls -A tower-fleet/locks"), "700\n", "the directory")
}
