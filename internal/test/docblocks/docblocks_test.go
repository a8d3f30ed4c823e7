package docblocks

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.md")
	text := "A page says `make\ntest` and `x`.\n\n```sh\n# why\nmake a\n\nmake `b`\n```\n\n    make c\n\n" +
		"```crontab\nPATH=/bin\n10 */2 * * 1-5 make d\n@daily make e\n```\n\n```\nmake f\n```\n\n- an item\n\n  ```sh\n  make g\n  ```\n"
	assert.OK(t, os.WriteFile(name, []byte(text), 0o600))
	p, err := Read(name)
	assert.OK(t, err)
	for _, is := range []struct {
		what      string
		got, want []string
	}{
		{"inline", p.Inline, []string{"make test", "x"}},
		{"lines", p.Lines(), []string{"make a", "make `b`", "make g"}},
		{"indented", p.Indented, []string{"make c"}},
		{"crontab", p.Crontab(), []string{"make d", "make e"}},
		{"without a kind", p.Fenced[""], []string{"make f\n"}},
	} {
		assert.That(t, slices.Equal(is.got, is.want), "%s: %q, want %q", is.what, is.got, is.want)
	}
}

func TestReadSection(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.md")
	text := "# A page\n\n```sh\nmake a\n```\n\n## One\n\n```sh\n# not a heading\nmake b\n```\n\n### Below\n\n`make c`\n\n## Two\n\n```sh\nmake d\n```\n"
	assert.OK(t, os.WriteFile(name, []byte(text), 0o600))
	for title, want := range map[string][]string{"A page": {"make a"}, "One": {"make b"}, "Below": nil, "Two": {"make d"}} {
		p, err := ReadSection(name, title)
		assert.That(t, err == nil && slices.Equal(p.Lines(), want), "%s: %q, %v; want %q", title, p.Lines(), err, want)
	}
	assert.That(t, assert.Err(ReadSection(name, "Three")) != nil, "there is no such section")
}
