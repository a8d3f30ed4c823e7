//go:build unix

package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/cloudsticlock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

// TestCloudstic runs docs/cloudstic.md with a stand-in for the program.
func TestCloudstic(t *testing.T) {
	p := newPage(t, "cloudstic.md")
	p.standIn("cloudstic")
	out := p.sh(p.Script())
	p.contains(out, "Cloudstic refuses to back up: 1", "Cloudstic refuses to prune: 1", "it is in its own way: 1", "cloudstic restore -output")
	for command, n := range map[string]int{"cloudstic backup -": 2, "cloudstic prune\n": 1, "cloudstic forget -": 1} {
		if got := strings.Count(out, "ran "+command); got != n {
			t.Errorf("%q was run %d times, want %d:\n%s", command, got, n, out)
		}
	}
	for _, command := range p.Crontab() {
		if out := p.sh(command); out != "" {
			t.Errorf("cron would mail this: %s", out)
		}
	}
	p.contains(p.sh(`. "$HOME/backup.env"; ls "$HOME/backups/snapshot" | wc -l; cloudstic check`), "3\n", "ran cloudstic check")
	if copied := p.sh(`tar -tf "$HOME/copy.tar"`); !strings.Contains(copied, "index/packs") || strings.Contains(copied, "index/lock") {
		t.Errorf("the copy has a lock in it, or nothing: %s", copied)
	}
	p.unlocked()
	p.contains(p.sh(`. "$HOME/backup.env"; repolock --name cloudstic status`), "no locks")

	// A command that changes the repository runs alone, and waits until it can.
	for _, line := range strings.Split(strings.ReplaceAll(p.Script()+strings.Join(p.Crontab(), "\n"), "\\\n", " "), "\n") {
		if strings.Contains(line, "--name cloudstic") && strings.Contains(line, "-- cloudstic ") && !strings.Contains(line, "-- cloudstic restore") &&
			(!strings.Contains(line, " run --exclusive ") && !strings.Contains(line, " prune ") || !strings.Contains(line, "--wait ")) {
			t.Errorf("not alone, or not waiting: %s", line)
		}
	}
}

// slow is a backup that has begun, with the commands that let it end.
const slow = `. "$HOME/backup.env"
mkdir -p "$HOME/slow" "$HOME/backups"
mkfifo "$HOME/slow/dump"
%s cloudstic backup -source "local:$HOME/slow" &
first=$!
exec 3>"$HOME/slow/dump"
%s
echo "the last line" >&3
exec 3>&-
wait $first
%s
cloudstic forget -keep-daily 7 -prune
cloudstic check || echo "a backup is lost: $?"
`

const cloudsticEnv = `cat >"$HOME/backup.env" <<'END'
export CLOUDSTIC_STORE="local:$HOME/backups" CLOUDSTIC_PASSWORD=x REPOLOCK_REPO="$HOME/backups"
END
`

// TestCloudsticOneAtATime: two parallel backups of Cloudstic lose one of them, under its own
// lock and under a shared one of ours. The page's way, one after the other, loses none.
func TestCloudsticOneAtATime(t *testing.T) {
	const alone = "repolock --name cloudstic run --exclusive --operation backup --wait 15m --"
	for _, c := range []struct {
		name, first, meanwhile, after string
		lost                          bool
	}{
		{"its own lock", "", `cloudstic backup -source "local:$HOME/pictures"`, "", true},
		{"a shared lock", "repolock --name cloudstic backup --", `repolock --name cloudstic backup -- cloudstic backup -source "local:$HOME/pictures"`, "", true},
		{
			"as on the page", alone, alone + ` cloudstic backup -source "local:$HOME/pictures" 3>&- &
second=$!
until repolock --name cloudstic status | grep waiting; do sleep 0.1; done`, "wait $second", false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPage(t, "cloudstic.md")
			p.standIn("cloudstic")
			out := p.sh(cloudsticEnv + fmt.Sprintf(slow, c.first, c.meanwhile, c.after))
			if strings.Contains(out, "a backup is lost: 1") != c.lost {
				t.Errorf("a backup is lost: want %v\n%s", c.lost, out)
			}
		})
	}
}

// TestCloudsticForgetsUnlocked: Cloudstic's forget has changed the repository when its lock is
// refused.
func TestCloudsticForgetsUnlocked(t *testing.T) {
	p := newPage(t, "cloudstic.md")
	p.standIn("cloudstic")
	p.contains(p.sh(cloudsticEnv+`. "$HOME/backup.env"
mkdir "$HOME/backups"
repolock run --exclusive --operation copy -- sh -c 'cloudstic forget -keep-daily 7 -prune || echo "refused: $?"; cat "$HOME/backups/index/snapshots"'
`), "refused: 1", "forgotten")
}

func init() { standIns["cloudstic"] = cloudstic }

// cloudstic follows Cloudstic's lock protocol, and has as much of a repository as shows why
// the locks are needed.
func cloudstic(args []string) error {
	ctx := context.Background()
	dir, local := strings.CutPrefix(os.Getenv("CLOUDSTIC_STORE"), "local:")
	if !local || os.Getenv("CLOUDSTIC_PASSWORD") == "" {
		return fmt.Errorf("CLOUDSTIC_STORE or CLOUDSTIC_PASSWORD is missing")
	}
	st, err := open.Store(ctx, dir)
	if err != nil {
		return err
	}
	r := packed{ctx, st}
	l := &cloudsticlock.Locker{Store: st, Clock: clock.System{}, Holder: fmt.Sprintf("here (pid %d)", os.Getpid())}
	line := strings.Join(args, " ")
	take := func(context.Context, string) (*cloudsticlock.Lock, error) { return nil, nil }
	do := func() error { return nil }
	switch {
	case args[0] == "init":
	case args[0] == "backup":
		source, ok := strings.CutPrefix(args[len(args)-1], "local:")
		if !ok {
			return fmt.Errorf("%s: no source", line)
		}
		take, do = l.Shared, func() error { return r.backup(source) }
	case args[0] == "restore":
		take, do = l.Shared, r.check
	case args[0] == "check":
		do = r.check
	case args[0] == "forget":
		if err := r.put("index/snapshots", "forgotten\n"); err != nil { // under any lock
			return err
		}
		if strings.HasSuffix(line, " -prune") {
			take, do = l.Exclusive, r.prune
		}
	case args[0] == "prune":
		take, do = l.Exclusive, r.prune
	default:
		return fmt.Errorf("%s: not known to the stand-in", line)
	}
	lock, err := take(ctx, args[0])
	if err != nil {
		return err
	}
	if lock != nil {
		defer lock.Release(ctx)
	}
	if err := do(); err != nil {
		return err
	}
	fmt.Println("ran cloudstic", line)
	return nil
}

// packed is a repository: index/packs lists all packs, and a snapshot is one of them.
type packed struct {
	ctx context.Context
	st  store.Store
}

func (r packed) put(key, body string) error {
	_, err := r.st.Put(r.ctx, key, []byte(body), store.PutOptions{})
	return err
}

func (r packed) packs() ([]string, error) {
	text, _, err := r.st.Get(r.ctx, "index/packs", 1<<20)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

// backup reads the list when it begins, and writes it with its own pack at the end.
func (r packed) backup(source string) error {
	packs, err := r.packs()
	if err != nil {
		return err
	}
	var data strings.Builder
	err = filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		data.Write(text)
		return err
	})
	id := rand.Text()
	return errors.Join(err, r.put("packs/"+id, data.String()), r.put("snapshot/"+id, id), r.put("index/packs", strings.Join(append(packs, id), "\n")))
}

// prune deletes the packs that aren't listed.
func (r packed) prune() error {
	packs, err := r.packs()
	if err != nil {
		return err
	}
	page, err := r.st.List(r.ctx, "packs/", "")
	for _, o := range page.Objects {
		if !slices.Contains(packs, strings.TrimPrefix(o.Key, "packs/")) {
			err = errors.Join(err, r.st.Delete(r.ctx, o.Key))
		}
	}
	return err
}

// check reads what each snapshot needs.
func (r packed) check() error {
	page, err := r.st.List(r.ctx, "snapshot/", "")
	for _, o := range page.Objects {
		id := strings.TrimPrefix(o.Key, "snapshot/")
		if _, _, gone := r.st.Get(r.ctx, "packs/"+id, 1<<20); gone != nil {
			err = errors.Join(err, fmt.Errorf("snapshot %s: its pack is gone: %w", id, gone))
		}
	}
	return err
}

// standIn puts a program of that name into the page's PATH. The program is this test binary.
func (p *page) standIn(name string) {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.MkdirAll(p.path("bin"), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Symlink(self, p.path("bin/"+name)); err != nil {
		p.t.Fatal(err)
	}
}
