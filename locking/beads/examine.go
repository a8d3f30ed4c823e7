package beads

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// firstReader and lastReader are the first and the last release of bd that reads the lock file.
var firstReader, lastReader = []int{0, 17, 7}, []int{0, 49, 6}

// maxVersion bounds the run of bd version.
const maxVersion = 5 * time.Second

var versionLine = lazyregexp.New(`(?m)^bd version v?([0-9]+)\.([0-9]+)\.([0-9]+)\b`)

// Examine reports which directory the lock is in, which database is there, and whether the bd in PATH reads the lock.
// It runs bd version, which opens no database. It writes nothing.
func (b *Backend) Examine(ctx context.Context) (found []locking.Finding, err error) {
	defer lockfile.Classify(&err)
	if err := b.check(ctx, Key); err != nil {
		return nil, err
	}
	for _, look := range []func() (locking.Finding, error){b.redirectFound, b.worktreeFound, b.databaseFound} {
		f, err := look()
		if err != nil {
			return nil, err
		}
		if f.What != "" {
			found = append(found, f)
		}
	}
	return append(found, bdFound(ctx)), nil
}

// redirectFound returns the finding about the redirect, or the zero Finding if there is no redirect.
func (b *Backend) redirectFound() (f locking.Finding, err error) {
	path := filepath.Join(b.named, redirectName)
	database, ignored, err := follow(b.named)
	switch {
	case ignored != "":
		f = locking.Finding{
			What: "redirect", Severity: locking.Risky,
			Found:  fmt.Sprintf("%s names %s, which is no directory, so bd works on %s and the lock is there", path, ignored, b.dir),
			Advice: "correct or remove the redirect",
		}
	case database != b.named:
		f = locking.Finding{What: "redirect", Found: fmt.Sprintf("%s names %s: the lock and bd's database are there", path, database)}
	}
	return f, err
}

// worktreeFound warns if the directory is in a linked worktree of git and the main repository has a .beads directory of
// its own. Unless BEADS_DIR is set, bd in the worktree works on the main repository's.
func (b *Backend) worktreeFound() (f locking.Finding, err error) {
	top := filepath.Dir(b.named)
	line, err := readFirst(filepath.Join(top, ".git"), "gitdir:")
	if line == "" || err != nil {
		return f, err
	}
	common, err := readFirst(filepath.Join(under(top, line), "commondir"), "")
	if common == "" || err != nil {
		return f, err
	}
	main := filepath.Join(filepath.Dir(under(under(top, line), common)), ".beads")
	if info, err := os.Stat(main); err != nil || !info.IsDir() {
		return f, nil
	}
	database, err := Database(main)
	if err != nil {
		return f, err
	}
	if same(database, b.dir) {
		return f, nil
	}
	return locking.Finding{
		What: "worktree", Severity: locking.Risky,
		Found:  fmt.Sprintf("%s is a worktree of git, where bd works on %s unless BEADS_DIR is set, and this lock is in %s", top, database, b.dir),
		Advice: "lock beads:" + database,
	}, nil
}

// databaseFound returns the finding about the database's form. The daemon that reads the lock works on SQLite.
func (b *Backend) databaseFound() (f locking.Finding, err error) {
	var metadata struct {
		Backend, Database string
	}
	if body, err := os.ReadFile(filepath.Join(b.dir, "metadata.json")); err == nil {
		_ = json.Unmarshal(body, &metadata) // bd reports a damaged file itself
	}
	names, err := os.ReadDir(b.dir)
	if err != nil {
		return f, err
	}
	var dolt, sqlite string
	for _, e := range names {
		switch name := e.Name(); {
		case e.IsDir() && (name == "dolt" || name == "embeddeddolt"):
			dolt = name
		case !e.IsDir() && strings.HasSuffix(name, ".db") && !strings.Contains(name, ".backup") && name != "vc.db":
			sqlite = name
		}
	}
	f = locking.Finding{What: "database"}
	switch {
	case strings.EqualFold(metadata.Backend, "dolt") || dolt != "" && sqlite == "":
		f.Severity, f.Found = locking.Risky, "Dolt"
		f.Advice = "only a daemon of bd v0.49.6 or older looks at the lock, and none works on a Dolt database, unless a Dolt server has it"
	case sqlite != "":
		f.Found = "SQLite, " + sqlite
	default:
		f.Severity, f.Found = locking.Risky, "none in "+b.dir
		f.Advice = "check that this is the directory that bd uses"
	}
	return f, nil
}

// bdFound returns the finding about the bd in PATH.
func bdFound(ctx context.Context) locking.Finding {
	f := locking.Finding{What: "bd", Severity: locking.Risky}
	program, err := exec.LookPath("bd")
	if err != nil {
		f.Found = "no bd in PATH, so its version is unknown"
		f.Advice = "only bd " + readers() + " looks at the lock, and with another bd it excludes only programs that look at it, such as repolock"
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, maxVersion)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "version")
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	err = cmd.Run()
	found := versionLine.FindStringSubmatch(out.String())
	if found == nil {
		f.Found = fmt.Sprintf("%s version printed no version of bd", program)
		if err != nil {
			f.Found += ": " + text.Error(err)
		}
		f.Advice = "only bd " + readers() + " looks at the lock"
		return f
	}
	var version []int
	for _, part := range found[1:] {
		n, err := strconv.Atoi(part)
		if err != nil { // it has too many digits
			n = int(^uint(0) >> 1)
		}
		version = append(version, n)
	}
	f.Found = fmt.Sprintf("v%s.%s.%s (%s)", found[1], found[2], found[3], program)
	if slices.Compare(version, firstReader) >= 0 && slices.Compare(version, lastReader) <= 0 {
		f.Severity = locking.Good
		f.Found += ", whose daemon skips a locked database; other commands of bd don't"
		return f
	}
	f.Found += " doesn't look at the lock"
	f.Advice = "only bd " + readers() + " does; with this bd the lock excludes only programs that look at it, such as repolock"
	return f
}

func readers() string {
	dots := func(v []int) string { return fmt.Sprintf("v%d.%d.%d", v[0], v[1], v[2]) }
	return dots(firstReader) + " to " + dots(lastReader)
}

// readFirst returns the rest of a file's first line after the prefix, or "" if the line doesn't begin with it.
func readFirst(path, prefix string) (string, error) {
	f, err := lockfile.Read(path, maxSize)
	if f == nil || err != nil || f.Unreadable != "" {
		return "", err
	}
	line, _, _ := strings.Cut(string(f.Body), "\n")
	rest, ok := strings.CutPrefix(line, prefix)
	if !ok {
		return "", nil
	}
	return strings.TrimSpace(rest), nil
}

// under returns a path that can be relative to a directory.
func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
