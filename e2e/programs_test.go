//go:build linux && programs

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/docblocks"
	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/internal/test/redistest"
	"github.com/repolock/repolock/internal/test/sshd"
	"github.com/repolock/repolock/internal/text"
)

// These tests run the commands of docs/ for other backup programs unchanged, with the real
// programs.

// TestRestic uses the restic of Debian.
func TestRestic(t *testing.T) {
	p := newPage(t, "restic.md")
	p.restic(p.Script(), debianRestic)
}

// newerRestic builds the restic that e2e/peers/restic/go.mod pins. README.md and docs/restic.md have its version.
func (p *page) newerRestic() {
	p.t.Helper()
	in(p.t, "peers/restic", "go build -o "+p.path("bin")+"/ github.com/restic/restic/cmd/restic", "CGO_ENABLED=0")
	p.contains(p.sh("restic version"), "restic 0.18.")
}

func TestNewRestic(t *testing.T) {
	p := newPage(t, "restic.md")
	p.newerRestic()
	p.restic(p.Script(), newRestic)
	// "faq.md" says that this restic accepts what repolock leaves.
	p.contains(p.sh(`. "$HOME/backup.env"
		repolock -r "$HOME/backups" run --exclusive --operation fence --fence --once-per 12h -- true
		ls "$HOME/backups/index"
		restic check`), "lock-fence\nlock-once\n", "no errors were found")
	// restic's own lock refuses a prune at once, or with --retry-lock once the backup has ended.
	out := p.sh(`. "$HOME/backup.env"
		mkfifo "$HOME/held"
		restic -q backup --stdin <"$HOME/held" & backup=$!
		exec 3>"$HOME/held"
		until restic -q list locks --no-lock | grep .; do sleep 0.1; done
		restic prune || echo "refused: $?"
		restic prune --retry-lock 5m >"$HOME/waits" 2>&1 3>&- & prune=$!
		until grep -q "repo already locked, waiting up to 5m0s for the lock" "$HOME/waits"; do sleep 0.1; done
		echo data >&3
		exec 3>&-
		wait $backup && wait $prune && echo "pruned at last"`)
	p.contains(out, "refused: 11\n", "pruned at last\n")
}

// resticVersion is what differs between versions of restic: the exit code of a restic that restic's own lock refuses,
// and the number of snapshots that the page leaves.
type resticVersion struct{ locked, snapshots int }

var (
	debianRestic = resticVersion{1, 3}  // one of each place
	newRestic    = resticVersion{11, 4} // forget also keeps the oldest one of a place, while there are too few to keep
)

// restic runs docs/restic.md, with its script.
func (p *page) restic(script string, v resticVersion) {
	p.t.Helper()
	p.at = "-- restic"
	p.contains(p.run(script), "no errors were found")
	p.refuses("repolock -- restic prune", "repolock -- restic backup --stdin --stdin-filename dump.sql")
	n := strings.Count(p.sh(`. "$HOME/backup.env"; restic -q list snapshots`), "\n")
	assert.Equal(p.t, n, v.snapshots, "snapshots")
	p.killedHere(v.locked)
	p.killedElsewhere(v.locked)
	p.unlocked()
}

// refuses checks that repolock refuses a command while another one reads a slow dump, and that the other one succeeds.
func (p *page) refuses(command, dump string) {
	p.t.Helper()
	out := p.sh(`. "$HOME/backup.env"
		mkfifo "$HOME/dump"
		` + dump + ` <"$HOME/dump" &
		exec 3>"$HOME/dump"
		until repolock status ` + p.at + ` | grep live; do sleep 0.1; done
		` + command + ` || echo "refused: $?"
		echo "the dump's last line" >&3
		exec 3>&-
		wait $!`)
	p.contains(out, "refused: 75")
}

// killedHere kills a backup with its repolock. restic's own lock must block a prune without restic unlock, and the page's
// prune must come through at once.
func (p *page) killedHere(locked int) {
	p.t.Helper()
	out := p.sh(`. "$HOME/backup.env"
		mkfifo "$HOME/slow"
		repolock --ttl 10s -- restic backup --stdin <"$HOME/slow" &
		killed=$!
		exec 3>"$HOME/slow"
		until restic -q list locks --no-lock | grep .; do sleep 0.1; done
		kill -9 $killed
		repolock --wait 15m --no-unlock -- restic prune || echo "blocked: $?"
		` + p.lineWith("forget --keep-daily 7 --prune") + ` && echo "pruned at once"`)
	p.contains(out, fmt.Sprintf("blocked: %d\n", locked), "pruned at once\n")
}

// lineWith returns the first line of the page's script that has this text.
func (p *page) lineWith(text string) string {
	p.t.Helper()
	i := slices.IndexFunc(p.Lines(), func(l string) bool { return strings.Contains(l, text) })
	assert.Need(p.t, i >= 0, "the page has no line with %q", text)
	return p.Lines()[i]
}

// killedElsewhere kills a restic of another machine. The page's prune must fail, and its
// line with --remove-all must not.
func (p *page) killedElsewhere(locked int) {
	p.t.Helper()
	p.sh(`. "$HOME/backup.env"
		mkfifo "$HOME/elsewhere"
		unshare --map-root-user --uts sh -c 'hostname elsewhere; exec restic backup --stdin' <"$HOME/elsewhere" &
		exec 3>"$HOME/elsewhere"
		until restic -q list locks --no-lock | grep .; do sleep 0.1; done
		kill -9 $!`)
	for _, c := range []struct {
		unlock string
		code   int
	}{{"forget --keep-daily 7 --prune", locked}, {"restic unlock --remove-all &&", 0}} {
		p.contains(p.sh(`. "$HOME/backup.env"; `+p.lineWith(c.unlock)+` || code=$?; echo "exit code ${code:-0}"`), fmt.Sprintf("exit code %d\n", c.code))
	}
}

func TestRclone(t *testing.T) {
	p := newPage(t, "rclone.md")
	p.rclone(p.Script())
	assert.That(t, !p.exists("remote/data/index"), "the locks were where rclone syncs")
}

// rclone runs docs/rclone.md, with its script.
func (p *page) rclone(script string) {
	p.t.Helper()
	p.at = "-- rclone cat remote:"
	out := p.run(script)
	p.contains(out, "0 differences found")
	p.refuses("repolock -- rclone sync \"$HOME/documents\" remote:documents", "repolock -- rclone rcat remote:dumps/dump.sql")
	is := p.sh(`. "$HOME/backup.env"; rclone lsf -R --files-only remote:`)
	for _, name := range []string{"documents/letter", "pictures/cat"} {
		p.contains(is, name)
		assert.That(p.t, p.exists("mirror/"+name), "%s isn't mirrored", name)
	}
	p.contains(is, "dumps/dump.sql")
	assert.That(p.t, !strings.Contains(is, "draft"), "the deleted files are still there:\n%s", is)
	p.unlocked()
}

func TestBorg(t *testing.T) {
	p := newPage(t, "borg.md")
	p.borg(p.Script())
}

// borg runs docs/borg.md, with its script.
func (p *page) borg(script string) {
	p.t.Helper()
	p.at = "-- borg"
	p.run(script)
	p.refuses("repolock -- borg check", "repolock -- borg create --stdin-name dump.sql '::{hostname}-dump-{now}' -")
	// Other machines use the same repository; one of them prunes last.
	for _, machine := range []string{"one", "two", "three", "one"} {
		for _, command := range p.Crontab() {
			p.sh("unshare --uts sh -euc 'hostname " + machine + `; eval "$0"' ` + text.Quote(command))
		}
	}
	is := p.sh(`. "$HOME/backup.env"; borg list`)
	for _, machine := range []string{"one", "two", "three"} {
		assert.That(p.t, strings.Contains(is, machine+"-documents-"), "the archives of %s were pruned:\n%s", machine, is)
	}
	is = p.sh(`. "$HOME/backup.env"; borg list --glob-archives "{hostname}-*"`)
	for archive, n := range map[string]int{"documents-": 2, "pictures-": 1, "dump-": 1} { // the first and the last documents
		assert.Equal(p.t, strings.Count(is, archive), n, "%s in\n%s", archive, is)
	}
	p.unlocked()
}

// TestReadme runs the README's first steps, from "../README.md", with the real programs. The first example needs no file
// of the home directory.
func TestReadme(t *testing.T) {
	t.Run("repolock", func(t *testing.T) {
		p := newSection(t, "repolock")
		for _, name := range []string{"documents", "pictures", "password"} {
			assert.OK(t, os.RemoveAll(p.path(name)))
		}
		p.contains(p.sh(p.Script()), "no locks\nlooked in "+p.path("restic")+",", "snapshot")
	})
	t.Run("On a directory", func(t *testing.T) {
		p := newSection(t, "On a directory")
		p.contains(p.sh(p.Script()), "nothing but locks is in "+p.path("backups"), "no locks\nlooked in "+p.path("backups")+",")
		assert.That(t, p.exists("backups/data/pictures/cat"), "nothing was copied")
	})
}

// TestFAQ runs "faq.md": the three crontabs on the way from flock to repolock, and what repolock leaves in restic's
// repository, which restic's check accepts.
func TestFAQ(t *testing.T) {
	p := newPage(t, "faq.md")
	p.write("backup.env", "export RESTIC_REPOSITORY=\"$HOME/backups\" RESTIC_PASSWORD_FILE=\"$HOME/password\"\n")
	p.sh(`. "$HOME/backup.env"; restic init`)
	assert.Need(t, len(p.Crontab()) == 3, "%d lines of a crontab", len(p.Crontab()))
	for _, line := range p.Crontab() {
		p.sh(line)
	}
	p.contains(p.sh(`. "$HOME/backup.env"
		restic snapshots
		repolock -r "$HOME/backups" run --exclusive --operation fence --fence --once-per 12h -- true
		repolock -r "$HOME/backups" --name nightly run --exclusive --once-per 12h -- true
		restic check`), "3 snapshots", "no errors were found")
	for _, name := range []string{"lock.shared", "lock.intent", "lock-fence", "lock-once/fence", "locks/nightly/lock-once/run"} {
		assert.That(t, p.exists("backups/index/"+name), "the page says that repolock leaves index/%s", name)
	}
	out := p.sh(`. "$HOME/backup.env"
` + p.Script() + `
		ls "$HOME/backups/index" "$HOME/.cache"`)
	p.contains(out, "no locks", "no errors were found")
	assert.That(t, !strings.Contains(out, "\nlock") && !strings.Contains(out, "repolock\n"), "something stays:\n%s", out)
}

// newSection returns a section of the README, and a home with something to back up.
func newSection(t *testing.T, title string) *page {
	t.Helper()
	p := newPage(t, "../README.md")
	section, err := docblocks.ReadSection("../README.md", title)
	assert.OK(t, err)
	p.Page = section
	return p
}

func TestKopia(t *testing.T) {
	p := newPage(t, "kopia.md")
	p.kopia(p.Script())
	p.maintains()
}

// kopia builds kopia, which no package of Debian's has, and runs docs/kopia.md, with its script.
func (p *page) kopia(script string) {
	p.t.Helper()
	p.at = "-- kopia"
	p.write("backup.env", "")
	in(p.t, "kopia", "go build -o "+p.path("bin")+"/ github.com/kopia/kopia", "CGO_ENABLED=0")
	p.env = append(p.env, "KOPIA_CHECK_FOR_UPDATES=false")
	p.contains(p.run(script), "Finished full maintenance")
	p.refuses("repolock -- kopia maintenance run --full", "repolock -- kopia snapshot create --no-auto-maintenance --stdin-file dump.sql \"$HOME/dumps\"")
	p.contains(p.sh("kopia snapshot list --all"), "/documents", "/pictures", "/dumps")
	p.unlocked()
}

// maintains checks why repolock's lock is exclusive without --no-auto-maintenance: Kopia runs due maintenance after a
// command that writes, also after policy set, and with the flag it doesn't.
func (p *page) maintains() {
	p.t.Helper()
	for _, command := range []string{"snapshot create \"$HOME/documents\"", "policy set --global --keep-latest 9"} {
		const ran = "Running full maintenance..."
		p.sh("kopia maintenance set --pause-full 0s") // it is due
		out := p.sh("repolock -v -- kopia " + command + " --no-auto-maintenance 2>&1")
		p.contains(out, "the shared lock in")
		assert.That(p.t, !strings.Contains(out, ran), "it runs maintenance in spite of --no-auto-maintenance:\n%s", out)
		p.contains(p.sh("repolock -v -- kopia "+command+" 2>&1"), "the exclusive lock in", ran)
	}
}

// TestProgramsOnSFTP: the pages' scripts with the repository, and the lock, on a server of SSH.
func TestProgramsOnSFTP(t *testing.T) {
	on := func(name string, run func(p *page, server *sshd.Server)) {
		t.Run(name, func(t *testing.T) {
			p := newPage(t, strings.TrimPrefix(name, "new ")+".md")
			server := sshd.Apart(t, "Subsystem sftp /usr/lib/openssh/sftp-server -d "+p.dir)
			server.Alias(t, "nas")
			assert.OK(t, os.Symlink(server.Bin(), p.path("bin")))
			run(p, server)
		})
	}
	restic := strings.NewReplacer(
		`RESTIC_REPOSITORY="$HOME/backups"`, `RESTIC_REPOSITORY="sftp:nas:$HOME/on-nas"`,
		`--from-repo "$HOME/backups"`, `--from-repo "sftp:nas:$HOME/on-nas"`,
		`-r "$HOME/backups"`, `-r "sftp://nas/$HOME/on-nas"`,
	)
	isThere := func(p *page, name string) {
		assert.That(p.t, p.exists(name+"/index/lock.shared"), "the lock wasn't in %s", name)
	}
	on("restic", func(p *page, _ *sshd.Server) {
		p.restic(p.moved(restic), debianRestic)
		isThere(p, "on-nas")
	})
	on("new restic", func(p *page, _ *sshd.Server) {
		p.newerRestic()
		p.restic(p.moved(restic), newRestic)
		isThere(p, "on-nas")
	})
	on("borg", func(p *page, _ *sshd.Server) {
		p.borg(p.moved(strings.NewReplacer(`BORG_REPO="$HOME/borg"`, `BORG_REPO="ssh://nas$HOME/borg"`)))
		isThere(p, "borg-lock")
	})
	on("kopia", func(p *page, _ *sshd.Server) {
		p.kopia(p.moved(strings.NewReplacer("create filesystem", "create sftp --external --host nas --username "+sshd.Me())))
		isThere(p, "kopia-lock")
	})
	on("rclone", func(p *page, server *sshd.Server) {
		p.rclone(p.moved(strings.NewReplacer(
			`REMOTE_REMOTE="$HOME/remote/data"`, fmt.Sprintf("REMOTE_REMOTE=\"nas:$HOME/remote/data\"\nexport RCLONE_CONFIG_NAS_TYPE=sftp RCLONE_CONFIG_NAS_HOST=127.0.0.1 RCLONE_CONFIG_NAS_PORT=%d RCLONE_CONFIG_NAS_USER=%s RCLONE_CONFIG_NAS_KEY_FILE=%s", server.Port, sshd.Me(), server.File("user")),
			`-r "$HOME/remote"`, `-r "`+server.URL("$HOME/remote")+`"`,
		)))
		isThere(p, "remote")
	})
}

// moved replaces the repository in the page's blocks, and returns their script.
func (p *page) moved(to *strings.Replacer) string {
	for i, block := range p.Fenced["sh"] {
		p.Fenced["sh"][i] = to.Replace(block)
	}
	return p.Script()
}

// run runs all blocks in one shell, and then the crontab entries; it returns their output.
func (p *page) run(script string) string {
	p.t.Helper()
	assert.Need(p.t, len(script) != 0 && len(p.Crontab()) != 0, "the page has nothing to run")
	out := p.sh(script)
	for _, command := range p.Crontab() {
		out += p.sh(command)
	}
	return out
}

// These tests run the pages about locks in Redis and PostgreSQL, with servers on free ports.

// serve replaces the server in the blocks of a page.
func (p *page) serve(server, ours string) []string {
	p.t.Helper()
	blocks := p.Fenced["sh"]
	for i, block := range blocks {
		blocks[i] = strings.ReplaceAll(block, server, ours)
	}
	return blocks
}

func TestRedisPage(t *testing.T) {
	p := alone(t, "also/redis.md")
	server := redistest.New(t)
	_, port, _ := strings.Cut(server.Addr(), ":")
	p.program("redis-cli", `PATH=${PATH#*:} exec redis-cli -p `+port+` "$@"`)
	p.program("restic", `echo "restic $* $REPOLOCK_MODE"`)
	blocks := p.serve("127.0.0.1:6379", server.Addr())
	assert.Need(t, len(blocks) == 3, "%d blocks", len(blocks))
	p.with("repo").each(blocks[:1], `restic prune exclusive\n`)
	p.each(blocks[1:], `^OK\n1\n$`, `eviction .*persistence .*fit for locks.*\nno locks\n.*nothing to break\n`)
	// Beside a holder, the other program gets nothing, and break-lock ends it.
	url := "redis://" + server.Addr() + "/0?key=nightly"
	p.each([]string{"repolock run --also " + text.Quote(url) + " -- sh -c " + text.Quote(blocks[1]+blocks[2]+"sleep 600") + " || echo $?"},
		`^\n0\n.*live.* on .*lock lost: .*redis://.*79\n$`)
}

func TestPostgresPage(t *testing.T) {
	p := alone(t, "also/postgres.md")
	server := pgtest.New(t)
	server.PSQL("create role backup login")
	server.PSQL("create database app owner backup")
	const url = "backup@db.example.com/app"
	ours := "backup@" + server.Address() + "/app"
	blocks := p.serve(url, ours)
	p.each(blocks, `no locks\n.*nothing to break\n.*fit for locks`)
	// Another program, by this SQL, acquires the lock, and not while repolock holds it.
	psql := fmt.Sprintf("psql -XqAt -h 127.0.0.1 -p %d -U backup app <<'END'\n%sEND\n", server.Port(), p.Fenced["sql"][0])
	p.each([]string{psql}, `^t\n`)
	p.each([]string{"repolock run --also 'postgres://" + ours + "?key=nightly' -- sh -c " + text.Quote(psql)},
		`^f\n.*repolock: nightly on `)
	// A lock that is broken is lost.
	p.each([]string{"repolock run --also 'postgres://" + ours + "?key=nightly' -- sh -c " + text.Quote(blocks[0]+"sleep 600") + " || echo $?"},
		`live.*lock lost: .*administrator command.*postgres://.*79\n$`)
}

// outcome is one fault with a certain outcome: two hold the lock at once, the lock of a dead holder is never
// freed, or neither.
type outcome struct {
	fault string
	// lease must be long if a lock must free itself well before the holder's child ends; "" is the page's.
	lease          string
	twoIn, blocked int
}

// others lists the locks of docs/evidence/torture-others.md.
var others = map[string]outcome{
	"flock":       {"kill-wrapper", "", 0, 0},
	"flock-o":     {"kill-wrapper", "1m", 1, 0},
	"mkdir":       {"kill-all", "", 0, 1},
	"redis":       {"kill-wrapper", "1m", 1, 0},
	"postgres":    {"kill-wrapper", "1m", 1, 0},
	"etcd":        {"kill-wrapper", "1m", 1, 0},
	"restic":      {"kill-all", "", 0, 1},
	"tower-fleet": {"kill-all", "", 0, 1},
	"cloudstic":   {"kill-wrapper", "2m", 1, 0},
	"repolock":    {"kill-wrapper", "", 0, 0},
}

// TestOthersPage runs each command of docs/evidence/torture-others.md for one round with one fault.
func TestOthersPage(t *testing.T) {
	page, err := docblocks.Read("../docs/evidence/" + "torture-others.md")
	assert.OK(t, err)
	const all, one = "make torture-others", "sh e2e/peers/torture.sh "
	var names []string
	for _, line := range page.Lines() {
		if line == all {
			continue
		}
		if strings.HasPrefix(line, "go run ./e2e/peers/judge --with ") {
			t.Run("by hand", func(t *testing.T) {
				line = strings.Replace(line, "flock lock", "flock "+t.TempDir()+"/lock", 1)
				verdict(t, outcome{"kill-all", "", 0, 0}, "sh", "-c", "cd .. && "+line+" --json --rounds 1 --faults kill-all")
			})
			continue
		}
		name, is := strings.CutPrefix(line, one)
		want, known := others[name]
		if !is || !known {
			t.Errorf("what must %q find?", line)
			continue
		}
		names = append(names, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"sh", "peers/torture.sh", name, "--json", "--rounds", "1", "--clients", "2", "--faults", want.fault}
			if want.lease != "" {
				args = append(args, "--lease", want.lease)
			}
			verdict(t, want, args...)
		})
	}
	script := read(t, "peers/torture.sh")
	assert.That(t, strings.Contains(script, "\nnames=\""+strings.Join(names, " ")+"\"\n") && len(names) == len(others), "%s judges other locks than %v", all, names)
	assert.That(t, strings.Contains(read(t, "../Makefile"), "\n\t@sh e2e/peers/torture.sh all "), "%s does something else", all)
}

// verdict runs a judge of one lock, which must have this outcome.
func verdict(t *testing.T, want outcome, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "REPOLOCK="+filepath.Join(bin, "repolock"), "TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	var result struct {
		Faults []struct {
			Fault                  string
			Rounds, Locks, Blocked int
			TwoIn                  int `json:"two_in"`
		}
		LeftOut  []struct{ Fault string } `json:"left_out"`
		Pictures []string
	}
	_, text, _ := strings.Cut("\n"+string(out), "\n{") // after the name
	bad := json.Unmarshal([]byte("{"+text), &result)
	assert.Need(t, bad == nil, "%v %v\n%s%s", err, bad, out, stderr.String())
	code, wantCode := cmd.ProcessState.ExitCode(), 0
	if want.twoIn+want.blocked > 0 {
		wantCode = 78
	}
	var f outcome
	for _, r := range result.Faults {
		f = outcome{r.Fault, want.lease, r.TwoIn, r.Blocked}
	}
	right := code == wantCode && f == want && len(result.Faults)+len(result.LeftOut) == 1
	assert.That(t, right, "exit code %d, %+v, want %+v\n%s\n%s", code, f, want, strings.Join(result.Pictures, "\n"), stderr.String())
}

// TestTortureClocks: a client whose clock is ahead passes a lock that relies on the wall clock, and no other
// lock. The judge leaves out a Go program, whose clock can't be faked.
func TestTortureClocks(t *testing.T) {
	s := newSite(t)
	s.write("lock.sh", `dir=$1 now=$(date +%s)
shift
[ ! -e "$dir/lock" ] || [ $((now - $(cat "$dir/lock"))) -gt 60 ] || exit 75
echo "$now" >"$dir/lock"
"$@"
rm -f "$dir/lock"
`)
	in(t, "..", "go build -o "+s.path("judge")+" ./e2e/peers/judge")
	torture := []string{s.path("judge"), "--json", "--clients", "2", "--rounds", "1", "--faults", "clock"}
	verdict(t, outcome{"clock", "", 1, 0}, append(torture, "--lease", "1m", "--with", "sh "+s.path("lock.sh")+" "+s.dir+" {}")...)
	verdict(t, outcome{"clock", "", 0, 0}, append(torture, "--lease", "1s", "--with", "flock "+s.path("flock")+" {}")...)
	without := append(slices.Clone(torture[:len(torture)-1]), "clock,kill-all", "--clean", "rm -rf "+s.repo+"/index", "--lease", "10s",
		"--with", filepath.Join(bin, "repolock")+" -r "+s.repo+" -q run --exclusive --operation torture --ttl 10s -- {}")
	out, err := exec.CommandContext(t.Context(), without[0], without[1:]...).Output()
	assert.That(t, err == nil && strings.Contains(string(out), `"left_out": [`) && strings.Contains(string(out), "never asks libc"), "%v: %s", err, out)
}
