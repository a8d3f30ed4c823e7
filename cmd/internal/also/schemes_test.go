package also

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/cmd/internal/session"
)

// parsed returns the URLs of the locks in their order.
func parsed(t *testing.T, urls ...string) (all []string) {
	t.Helper()
	targets, err := Parse(urls)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		all = append(all, target.Place.URL)
	}
	return all
}

// place returns the place that a URL names.
func place(t *testing.T, url string) session.Place {
	t.Helper()
	targets, err := Parse([]string{url})
	if err != nil {
		t.Fatal(err)
	}
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
		if !strings.HasPrefix(want[i], scheme+":") {
			t.Errorf("%d is %s", i, want[i])
		}
	}
	for range urls {
		urls = append(urls[3:len(urls):len(urls)], urls[:3]...)
		if got := parsed(t, urls...); !slices.Equal(got, want) {
			t.Errorf("%q is tried as %q", urls, got)
		}
		slices.Reverse(urls)
		if got := parsed(t, urls...); !slices.Equal(got, want) {
			t.Errorf("%q is tried as %q", urls, got)
		}
	}
}

// TestOneLock: URLs of one lock are refused together, however they are written, and are one place for
// a repolock under that lock. Those of two locks are neither. A place is shown as it was named.
func TestOneLock(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := errors.Join(os.MkdirAll("p/.beads", 0o700), os.Mkdir("x", 0o700)); err != nil {
		t.Fatal(err)
	}
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
		{"beads:p", "beads:p2", true}, // p2 is a link, and what is in it is there or not
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
			if same := err != nil; same != c.same || same && (!errors.As(err, new(URLError)) || !strings.Contains(err.Error(), "named twice")) {
				t.Errorf("%q: %v", urls, err)
			}
		}
		a, b := place(t, c.a), place(t, c.b)
		if same := a.ID() == b.ID(); same != c.same {
			t.Errorf("%s and %s are one place: %t", c.a, c.b, same)
		}
		if link && !strings.Contains(b.String(), "/p2/") || b.String() != b.URL {
			t.Errorf("%s is shown as %s", c.b, b)
		}
	}
	for url, p := range map[string]session.Place{
		"repo:p#n":         {Repo: "p", Name: "n"},
		"repo:s3://b/p#n":  {Repo: "s3://b/p", Name: "n"},
		"repo:s3://b/p/#n": {Repo: "s3://b/p", Name: "n"},
		"repo:s3://b/q#n":  {Repo: "s3://b/q/", Name: "n"},
	} {
		if place(t, url).ID() != p.ID() {
			t.Errorf("%s isn't the place of --repo %s --name %s", url, p.Repo, p.Name)
		}
	}
}

// TestRepositoryURL: the name is behind the last #, and the URL before it keeps its parameters.
func TestRepositoryURL(t *testing.T) {
	t.Chdir(t.TempDir())
	for url, want := range map[string][2]string{
		"repo:s3://bucket/path#photos":               {"s3://bucket/path", "photos"},
		"repo:s3://bucket/path?conditions=kept#mail": {"s3://bucket/path?conditions=kept", "mail"},
		"repo:a#b#c":    {"a#b", "c"},
		"REPO:/srv/x#n": {"/srv/x", "n"},
	} {
		targets, err := Parse([]string{url})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if p := targets[0].Place; p.Repo != want[0] || p.Name != want[1] || !targets[0].Repository() {
			t.Errorf("%s: %+v", url, p)
		}
	}
	for _, url := range []string{"repo:", "repo:x", "repo:x#", "repo:#", "repo:x#Bad", "repo:x#a/b", "repo:gopher://h/x#n", "repo:#n"} {
		if targets, err := Parse([]string{url}); err == nil {
			t.Errorf("%s: %+v", url, targets[0].Place)
		}
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
		if _, err := Parse([]string{url}); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestKnown: what doctor takes for another system is what Parse knows.
func TestKnown(t *testing.T) {
	for url, want := range map[string]bool{
		"redis://h?key=k": true, "REDISS://h": true, "postgresql:": true, "tower-fleet:x": true, "beads:.": true, "repo:x#n": true,
		"s3://bucket": false, "/srv/repo": false, "": false, "red": false, "file:///x": false,
	} {
		if Known(url) != want {
			t.Errorf("%s: %t", url, !want)
		}
	}
	for i, example := range Examples() {
		if !Known(example) || !slices.Contains(schemes[i].names, strings.SplitN(example, ":", 2)[0]) {
			t.Errorf("%s isn't known", example)
		}
	}
}
