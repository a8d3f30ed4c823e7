package also

import (
	"testing"

	"github.com/repolock/repolock/cmd/internal/session"
)

// place returns the place that a URL names.
func place(t *testing.T, url string) session.Place {
	t.Helper()
	targets, err := Parse([]string{url})
	if err != nil {
		t.Fatal(err)
	}
	p := targets[0].Place
	if p.String() != p.URL {
		t.Errorf("%s: the place is shown as %s", url, p)
	}
	return p
}

// TestOnePlace: URLs of one lock are one place for a repolock under that lock.
func TestOnePlace(t *testing.T) {
	t.Chdir(t.TempDir())
	id := func(url string) string { return place(t, url).ID() }
	seen := map[string]string{}
	for _, same := range [][]string{
		{"redis://127.0.0.1/0?key=k", "redis://127.0.0.1:6379/0?key=lock:k&prefix=bext:", "redis://u@127.0.0.1?key=k",
			"rediss://127.0.0.1?key=k&password-file=/p&ca=/c"},
		{"redis://127.0.0.1/1?key=k"},
		{"postgres://host/db?key=k", "postgres://user@host/db?key=k", "postgresql://host:5432/db?sslmode=disable&passfile=/p&key=k"},
		{"postgres://host/other?key=k"},
		{"beads:p", "beads:./p/.beads"},
		{"beads:."},
		{"tower-fleet:p/a", "tower-fleet:./p//a"},
		{"tower-fleet:p/b"},
		{"repo:s3://b/p#n", "repo:s3://b/p/#n"},
		{"repo:p#n", "repo:./p/#n"},
		{"repo:p#m"},
	} {
		for _, url := range same {
			if got, want := id(url), id(same[0]); got != want {
				t.Errorf("%s and %s are two places", same[0], url)
			}
		}
		if other := seen[id(same[0])]; other != "" {
			t.Errorf("%s and %s are one place", same[0], other)
		}
		seen[id(same[0])] = same[0]
	}
	for url, p := range map[string]session.Place{
		"repo:p#n":         {Repo: "p", Name: "n"},
		"repo:s3://b/p#n":  {Repo: "s3://b/p", Name: "n"},
		"repo:s3://b/p/#n": {Repo: "s3://b/p", Name: "n"},
		"repo:s3://b/q#n":  {Repo: "s3://b/q/", Name: "n"},
	} {
		if id(url) != p.ID() {
			t.Errorf("%s isn't the place of --repo %s --name %s", url, p.Repo, p.Name)
		}
	}
}
