package also

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// parsed returns the URLs of the locks in their order.
func parsed(t *testing.T, urls ...string) (all []string) {
	t.Helper()
	targets, err := Parse(urls)
	assert.OK(t, err)
	for _, target := range targets {
		all = append(all, target.Place.URL)
	}
	return all
}

// place returns the place that a URL names.
func place(t *testing.T, url string) session.Place {
	t.Helper()
	targets, err := Parse([]string{url})
	assert.OK(t, err)
	return targets[0].Place
}

// TestOneOrder: whatever the order of the flags, the locks are tried in one order.
func TestOneOrder(t *testing.T) {
	t.Chdir(t.TempDir())
	urls := []string{
		"repo:s3://bucket/a#photos", "repo:s3://bucket/b#mail", "redis://host/0?key=a", "rediss://host/0?key=b",
		"postgres://host/db?key=a", "postgresql://other/db?key=a", "tower-fleet:./locks/a", "tower-fleet:./locks/b", "beads:x", "beads:y",
	}
	want := parsed(t, urls...)
	for i, scheme := range []string{"repo", "repo", "redis", "rediss", "postgres", "postgres", "tower-fleet", "tower-fleet", "beads", "beads"} {
		assert.That(t, strings.HasPrefix(want[i], scheme+":"), "%d is %s", i, want[i])
	}
	for range urls {
		urls = append(urls[3:len(urls):len(urls)], urls[:3]...)
		assert.Equal(t, parsed(t, urls...), want, urls)
		slices.Reverse(urls)
		assert.Equal(t, parsed(t, urls...), want, urls)
	}
}

// TestOneLock: two URLs of one lock are refused, however they are written, and are one place for
// a repolock under that lock. URLs of two locks are neither. A place is shown as the user wrote it.
func TestOneLock(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	assert.OK(t, fault.Join(os.MkdirAll("p/.beads", 0o700), os.Mkdir("x", 0o700)))
	linked := os.Symlink("p", "p2") == nil
	if got, err := os.Getwd(); err == nil {
		dir = got
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"redis://host?key=k", "redis://host:6379/0?key=k", true},
		{"redis://host?key=k", "redis://user@HOST/0?key=k", true},
		{"redis://host?key=k", "rediss://host/?key=k&password-file=/p&ca=/c", true},
		{"redis://host?key=k", "redis://host/0?key=lock:k&prefix=bext:", true},
		{"redis://host?key=k", "redis://host/1?key=k", false},
		{"redis://host?key=k", "redis://host:6380?key=k", false},
		{"redis://host?key=k", "redis://host?key=K", false},
		{"redis://host?key=k", "postgres://host/0?key=k", false},
		{"postgres://host/db?key=k", "postgresql://host:5432/db?key=k", true},
		{"postgres://host/db?key=k", "postgres://user@HOST/db?key=k", true},
		{"postgres://host/db?key=k", "postgres://host/db?sslmode=require&passfile=/p&key=k", true},
		{"postgres://host/db?key=k", "postgres://host/db?key=k&pooler=session", true},
		{"postgres://host/db?key=k", "postgres://host/other?key=k", false},
		{"postgres://host/db?key=k", "postgres://host:5433/db?key=k", false},
		{"tower-fleet:./locks/a", "tower-fleet:" + dir + "/locks/a", true},
		{"tower-fleet:./locks/a", "Tower-Fleet:x/..//locks/./a", true},
		{"tower-fleet:./locks/a", "tower-fleet:./locks/b", false},
		{"beads:.", "beads:.beads", true},
		{"beads:.", "beads:" + dir + "/.beads/", true},
		{"beads:.", "beads:x", false},
		{"repo:x#n", "repo:./x/#n", true},
		{"repo:x#n", "repo:" + dir + "/x#n", true},
		{"repo:x#n", "repo:" + dir + "//x/../x/#n", true},
		{"repo:x#n", "repo:file://" + filepath.ToSlash(dir) + "/x#n", true},
		{"repo:x#n", "repo:x#m", false},
		{"repo:x#n", "repo:y#n", false},
		{"repo:s3://b/p#n", "repo:s3://b/p/#n", true},
		{"repo:s3://b/p#n", "repo:s3://b/q#n", false},
		{"repo:x#n", "beads:x", false},
		{"beads:p", "beads:p2", true}, // p2 is a link; the rest of the path exists or not
		{"beads:p", "beads:p2/.beads", true},
		{"beads:p/none", "beads:p2/none", true},
		{"beads:p/one", "beads:p2/two", false},
		{"tower-fleet:p/a", "tower-fleet:p2/a", true},
		{"tower-fleet:p/none/a", "tower-fleet:p2/none/a", true},
		{"tower-fleet:p/none/more/a", "tower-fleet:p2/none/more/a", true},
		{"tower-fleet:p/a", "tower-fleet:p2/b", false},
	} {
		link := strings.Contains(c.b, "p2")
		if runtime.GOOS == "windows" && strings.Contains(c.b, dir) || link && !linked {
			continue
		}
		for _, urls := range [][]string{{c.a, c.b}, {c.b, c.a}, {c.a, "redis://between?key=k", c.b}} {
			_, err := Parse(urls)
			same := err != nil
			assert.That(t, same == c.same && (!same || errors.Is(err, fault.URL) && strings.Contains(err.Error(), "named twice")),
				"%q: %v", urls, err)
		}
		a, b := place(t, c.a), place(t, c.b)
		assert.Equal(t, a.ID() == b.ID(), c.same, "%s and %s", c.a, c.b)
		assert.That(t, !link || strings.Contains(b.URL, "/p2/"), "%s is shown as %s", c.b, b.URL)
	}
	for url, p := range map[string]session.Place{
		"repo:p#n":         {Repo: "p", Name: "n"},
		"repo:s3://b/p#n":  {Repo: "s3://b/p", Name: "n"},
		"repo:s3://b/p/#n": {Repo: "s3://b/p", Name: "n"},
		"repo:s3://b/q#n":  {Repo: "s3://b/q/", Name: "n"},
	} {
		assert.That(t, place(t, url).ID() == p.ID(), "%s isn't the place of --repo %s --name %s", url, p.Repo, p.Name)
	}
}

// TestRepositoryURL: the name is behind the last #, and the URL before it keeps its parameters.
func TestRepositoryURL(t *testing.T) {
	t.Chdir(t.TempDir())
	for url, want := range map[string]session.Place{
		"repo:s3://bucket/path?conditions=kept#mail": {Repo: "s3://bucket/path?conditions=kept", Name: "mail"},
		"repo:a#b#c":    {Repo: "a#b", Name: "c"},
		"REPO:/srv/x#n": {Repo: "/srv/x", Name: "n"},
	} {
		p := place(t, url)
		assert.That(t, p.Repo == want.Repo && p.Name == want.Name, "%s: %+v", url, p)
	}
	for _, url := range []string{"repo:", "repo:x", "repo:x#", "repo:#", "repo:x#Bad", "repo:x#a/b", "repo:gopher://h/x#n", "repo:#n"} {
		assert.Is(t, assert.Err(Parse([]string{url})), fault.URL, url)
	}
}

// TestNoSecretIsRepeated: an error shows no part of a URL that can be a password.
func TestNoSecretIsRepeated(t *testing.T) {
	for _, url := range []string{
		"redis://:hunter2@host/0?key=k", "redis://u:hunter2@host?key=k", "redis://host?key=k&password=hunter2", "redis://u:hunter2@host",
		"redis://u:hunter2@ho st?key=k", "redis://u:hunter2%zz@host?key=k", "rediss://u:hunter2@host?key=k#x", "redis:hunter2",
		"postgres://u:hunter2@host/db?key=k", "postgres://u:hunter2@host?key=k", "postgres://host/db?key=k&password=hunter2", "postgres://u:hunt@er2hunter2@h/d?key=k",
		"postgresql://u:hunter2@h:x/db?key=k", "redsi://u:hunter2@host/0?key=k", "postgre://u:hunter2@host/db?key=k", "//u:hunter2@host",
		"repo:https://u:hunter2@host/x#n", "repo:s3://u:hunter2@bucket/x#n", "repo:gopher://u:hunter2@h/x#n", "repo:s3://u:hunter2@bucket/x", "repo:rclone:u:hunter2@x%zz#n",
	} {
		_, err := Parse([]string{url})
		assert.That(t, err != nil && !strings.Contains(err.Error(), "hunter2") && !strings.Contains(err.Error(), "\n"), "%s: %v", url, err)
	}
}

// TestKnown: Known knows the schemes of Parse, and no others.
func TestKnown(t *testing.T) {
	for url, want := range map[string]bool{
		"redis://h?key=k": true, "REDISS://h": true, "postgresql:": true, "tower-fleet:x": true, "beads:.": true, "repo:x#n": true,
		"s3://bucket": false, "/srv/repo": false, "": false, "red": false, "file:///x": false,
	} {
		assert.That(t, Known(url) == want, "%s: %t", url, !want)
	}
	for i, example := range Examples() {
		assert.That(t, Known(example) && slices.Contains(schemes[i].names, strings.SplitN(example, ":", 2)[0]), "%s isn't known", example)
	}
}

// TestHint: the advice about a lock depends on its kind, and on what is known of its holder.
func TestHint(t *testing.T) {
	stale, remote := replock.Info{Holder: "h", Verdict: replock.Stale}, replock.Info{Holder: "h on vm", Verdict: replock.Live, Why: "only vm knows"}
	for _, c := range []struct {
		url  string
		info replock.Info
		says string
	}{
		{"beads:x", replock.Info{Holder: "h", Verdict: replock.Live}, "--wait 1h waits until it is done; the lock is free as soon as its process ends"},
		{"beads:x", remote, "run repolock break-lock --dead --also beads:x on that machine"},
		{"beads:x", stale, "this file system has no flock"},
		{"beads:x", replock.Info{Verdict: replock.Unreadable}, "if no operation is running, run repolock break-lock --also beads:x"},
		{"tower-fleet:x/n", stale, "--force-lock steals it"},
		{"redis://h/0?key=k", remote, expires},
		{"postgres://h/d?key=k", stale, freed},
	} {
		got := Hint(c.url, c.info)
		assert.That(t, strings.Contains(got, c.says), "%s, %+v: %s", c.url, c.info, got)
	}
}

// shelf is a backend with one lock, which a test describes.
type shelf struct {
	locking.Backend
	info     *locking.Info
	err      error
	broken   []bool // the restriction to stale locks, with each Break
	refuse   bool
	findings []locking.Finding
}

func (s *shelf) Inspect(context.Context, string) (*locking.Info, error) { return s.info, s.err }

func (s *shelf) Break(_ context.Context, seen *locking.Info, stale bool) (bool, error) {
	s.broken = append(s.broken, stale)
	return !s.refuse && seen == s.info, nil
}

func (s *shelf) Examine(context.Context) ([]locking.Finding, error) { return s.findings, s.err }

// TestPasswordFileOfAll: an acquire and doctor warn that other users can read the password.
func TestPasswordFileOfAll(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the modes of files don't say there who can read them")
	}
	path := filepath.Join(t.TempDir(), "password")
	assert.OK(t, os.WriteFile(path, []byte("secret"), 0o600))
	t.Setenv("PGPASSFILE", path)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, url := range []string{"redis://127.0.0.1:1?key=k&password-file=" + path, "postgres://u@127.0.0.1:1/d?key=k&passfile=" + path, "postgres://u@127.0.0.1:1/d?key=k"} {
		targets, err := Parse([]string{url})
		assert.OK(t, err)
		for mode, want := range map[os.FileMode]int{0o600: 0, 0o640: 0, 0o644: 1} {
			assert.OK(t, os.Chmod(path, mode))
			r := &record{}
			_, err := NewSet(nil, targets, Request{TTL: time.Minute, Look: time.Minute}).Acquire(ended, r.observe)
			assert.Is(t, err, context.Canceled)
			assert.Equal(t, len(r.of(events.PasswordExposed)), want, "%s with mode %o", url, mode)
			l := Lock{Backend: &shelf{}, Target: targets[0]}
			report, err := l.Examine(t.Context())
			assert.OK(t, err)
			assert.Equal(t, len(report.Checks), 1+want, "doctor's checks of %s with mode %o", url, mode)
		}
	}
}

// TestObserves: a look creates no directory for locks, and neither does breaking one.
func TestObserves(t *testing.T) {
	there := t.TempDir()
	none := filepath.Join(there, "none")
	for _, c := range []struct {
		dir     string
		purpose Purpose
		want    bool
	}{{there, Hold, false}, {none, Hold, false}, {there, Break, false}, {none, Break, true}, {there, Look, true}, {none, Look, true}} {
		assert.Equal(t, observes(c.dir, c.purpose), c.want, c)
	}
}

// TestVerdicts: a holder is shown as a repository's holder is.
func TestVerdicts(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name    string
		info    locking.Info
		verdict replock.Verdict
		gone    bool
		holder  string
	}{
		{"live", locking.Info{Holder: "h", Host: "vm", PID: 7, Renewed: now, TTL: time.Minute}, replock.Live, false, "h on vm (pid 7)"},
		{"stale by its ttl", locking.Info{Holder: "h", Renewed: now.Add(-time.Hour), TTL: time.Minute, Stale: true}, replock.Stale, false, "h"},
		{"stale by its process", locking.Info{Host: "vm", Stale: true}, replock.Stale, true, "on vm"},
		{"unreadable", locking.Info{Unreadable: "it is cut off", Stale: true}, replock.Unreadable, false, ""},
	} {
		got, err := Lock{Backend: &shelf{info: &c.info}, Target: target("k")}.Inspect(t.Context())
		assert.That(t, err == nil && got.Verdict == c.verdict && got.ProcessGone == c.gone && got.Holder == c.holder && got.Why == c.info.Unreadable && got.Key() == "fake:k",
			"%s: %+v, %v", c.name, got, err)
	}
	late, _ := Lock{Backend: &shelf{info: &locking.Info{Renewed: now.Add(-time.Hour), TTL: time.Minute}}}.Inspect(t.Context())
	assert.That(t, late.Left <= -58*time.Minute && late.Age >= time.Hour, "age %v, left %v", late.Age, late.Left)
}

// TestBreakChooses: break-lock removes the lock if its flags choose it, and asks the backend for a stale lock with
// --stale.
func TestBreakChooses(t *testing.T) {
	live := &locking.Info{Revision: "1", TTL: time.Minute, Renewed: time.Now()}
	stale := &locking.Info{Revision: "1", TTL: time.Minute, Stale: true}
	dead := &locking.Info{Revision: "1", Stale: true}
	unreadable := &locking.Info{Revision: "1", Unreadable: "it is cut off"}
	shown := func(id, key string) []replock.Broken {
		return []replock.Broken{{Info: replock.Info{ID: id, Keys: []string{key}, ModTime: live.Renewed}}}
	}
	for _, c := range []struct {
		name string
		info *locking.Info
		opts replock.BreakOptions
		want []bool
	}{
		{"free", nil, replock.BreakOptions{}, nil},
		{"any", live, replock.BreakOptions{}, []bool{false}},
		{"any, unreadable", unreadable, replock.BreakOptions{}, []bool{false}},
		{"dry", live, replock.BreakOptions{DryRun: true}, nil},
		{"stale, live", live, replock.BreakOptions{Stale: true}, nil},
		{"stale, unreadable", unreadable, replock.BreakOptions{Stale: true}, nil},
		{"stale", stale, replock.BreakOptions{Stale: true}, []bool{true}},
		{"dead, live", live, replock.BreakOptions{Dead: true}, nil},
		{"dead, stale", stale, replock.BreakOptions{Dead: true}, nil},
		{"dead", dead, replock.BreakOptions{Dead: true}, []bool{false}},
		{"id", live, replock.BreakOptions{ID: "1"}, []bool{false}},
		{"another id", live, replock.BreakOptions{ID: "2"}, nil},
		{"shown", live, replock.BreakOptions{Only: shown("1", "fake:k")}, []bool{false}},
		{"a server tells its time anew", &locking.Info{Revision: "1", TTL: time.Minute, Renewed: time.Now().Add(time.Second)}, replock.BreakOptions{Only: shown("1", "fake:k")}, []bool{false}},
		{"a script's heartbeat since", &locking.Info{Request: "1", Revision: "2", TTL: time.Minute, Stale: true}, replock.BreakOptions{Only: shown("1", "fake:k")}, nil},
		{"another was shown", live, replock.BreakOptions{Only: shown("2", "fake:k")}, nil},
		{"another key's was shown", live, replock.BreakOptions{Only: shown("1", "fake:l")}, nil},
		{"none was shown", live, replock.BreakOptions{Only: []replock.Broken{}}, nil},
	} {
		s := &shelf{info: c.info}
		got, err := Lock{Backend: s, Target: target("k")}.Break(t.Context(), c.opts)
		assert.That(t, err == nil && slices.Equal(s.broken, c.want) && (len(got) == 1) == (c.want != nil || c.opts.DryRun),
			"%s: %v, %v, %v", c.name, got, err, s.broken)
	}
	s := &shelf{info: live, refuse: true}
	got, err := (Lock{Backend: s}).Break(t.Context(), replock.BreakOptions{})
	assert.That(t, len(got) == 0 && err == nil, "another holder has it: %v, %v", got, err)
	inspector := struct {
		locking.Backend
		locking.Inspector
	}{nil, &shelf{info: live}}
	got, err = (Lock{Backend: inspector}).Break(t.Context(), replock.BreakOptions{})
	assert.That(t, len(got) == 0 && err != nil, "a kind that can't be broken: %v, %v", got, err)
}

// TestExamine: the worst finding decides whether a system is fit.
func TestExamine(t *testing.T) {
	good, doubtful := locking.Finding{What: "eviction policy", Found: "noeviction"}, locking.Finding{What: "replicas", Found: "1", Severity: locking.Risky, Advice: "have none"}
	bad := locking.Finding{What: "pooler", Found: "transaction", Severity: locking.Bad, Advice: "go around it"}
	for _, c := range []struct {
		findings []locking.Finding
		want     doctor.Fitness
		results  []doctor.Result
	}{
		{nil, doctor.Fit, []doctor.Result{doctor.OK}},
		{[]locking.Finding{good}, doctor.Fit, []doctor.Result{doctor.OK, doctor.OK}},
		{[]locking.Finding{doubtful, good}, doctor.Fit, []doctor.Result{doctor.OK, doctor.Warn, doctor.OK}},
		{[]locking.Finding{bad, doubtful}, doctor.Unfit, []doctor.Result{doctor.OK, doctor.Fail, doctor.Warn}},
	} {
		report, err := Lock{Backend: &shelf{findings: c.findings}, Target: target("k")}.Examine(t.Context())
		var results []doctor.Result
		for _, check := range report.Checks {
			results = append(results, check.Result)
		}
		assert.That(t, err == nil && report.Verdict.Fitness == c.want && slices.Equal(results, c.results) && report.Store == "fake:k",
			"%+v, %v", report, err)
	}
	got := check(bad)
	assert.That(t, got.Name == "pooler" && got.Detail == "transaction; go around it", "%+v", got)
	assert.Is(t, assert.Err((Lock{Backend: &shelf{err: locking.ErrUnreachable}}).Examine(t.Context())), locking.ErrUnreachable)
}

// TestExamineDescribes: doctor describes the present lock, and warns of a lock that can't be read.
func TestExamineDescribes(t *testing.T) {
	for _, c := range []struct {
		info   *locking.Info
		result doctor.Result
		detail string
	}{
		{nil, doctor.OK, "the lock is free"},
		{&locking.Info{Holder: "h", TTL: time.Minute}, doctor.OK, "the lock is held by h"},
		{&locking.Info{TTL: time.Minute}, doctor.OK, "the lock is held by a holder that doesn't say its name"},
		{&locking.Info{Holder: "h", Host: "vm", Remote: true}, doctor.OK, "the lock is held by h on vm; only vm can find out whether that process has ended"},
		{&locking.Info{Holder: "h", TTL: time.Minute, Stale: true}, doctor.OK, "there is a stale lock of h"},
		{&locking.Info{Unreadable: "it is cut off"}, doctor.Warn, "the lock is held, because it can't be read: it is cut off; if no operation is running, run repolock break-lock --also beads:x"},
	} {
		report, err := Lock{Backend: &shelf{info: c.info}, Target: Target{Place: session.Place{URL: "beads:x"}}}.Examine(t.Context())
		assert.Need(t, err == nil && len(report.Checks) == 1, "%+v, %v", report, err)
		got := report.Checks[0]
		assert.That(t, got.Name == doctor.Reachable && got.Result == c.result && got.Detail == c.detail, "%+v, want %s: %s", got, c.result, c.detail)
	}
}

// abilities is a backend with connections that end by Close, of which each holds a lock. It stores the work's result.
type abilities struct {
	locking.Backend
	syscall.Conn
	closed   int
	finished []bool
}

func (a *abilities) Close() error                           { a.closed++; return locking.ErrUnreachable }
func (a *abilities) finish(success bool)                    { a.finished = append(a.finished, success) }
func (a *abilities) Connection(locking.Handle) syscall.Conn { return a.Conn }

// TestAbilities: the connections of a backend are closed, its lock's connection is known to the guard, and the backend
// gets the result of the work. A backend without them has nothing to close, to keep or to store.
func TestAbilities(t *testing.T) {
	r, w, err := os.Pipe()
	assert.OK(t, err)
	defer r.Close()
	defer w.Close()
	a := &abilities{Conn: r}
	o := &other{Lock: Lock{Backend: a}}
	assert.Is(t, o.Close(), locking.ErrUnreachable)
	about := (&held{other: o}).About()
	about.Finish(true)
	assert.That(t, a.closed == 1 && slices.Equal(a.finished, []bool{true}) && about.Connection() == syscall.Conn(r), "%+v, %v", a, about.Connection())
	o.Backend = &shelf{}
	about = (&held{other: o}).About()
	assert.That(t, o.Close() == nil && about.Finish == nil && about.Connection() == nil, "%+v", about)
}
