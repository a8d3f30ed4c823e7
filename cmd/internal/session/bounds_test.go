package session

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestOneRepository: all spellings of one repository are one lock, and no two repositories are.
func TestOneRepository(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	dir, err := filepath.Abs(".")
	assert.OK(t, err)
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"a", filepath.Join(dir, "a"), true},
		{"./a/", "b/../a", true},
		{filepath.Join(dir, "a") + "/", dir + "/b/../a", true},
		{"a", "b", false},
		{"s3://bucket/a", "s3://bucket/a/", true},
		{"s3://bucket/a", "s3://bucket/b", false},
		{"s3://bucket/a", "b2://bucket/a", false},
	} {
		a, b := Place{Repo: c.a}, Place{Repo: c.b}
		assert.That(t, (a.Lock() == b.Lock()) == c.same && (a.ID() == b.ID()) == c.same, "%s: %q, %s: %q", c.a, a.Lock(), c.b, b.Lock())
		b.Name = "other"
		assert.That(t, a.Lock() != b.Lock(), "two names: %q", a.Lock())
	}
	a, b := Place{URL: "redis://h?key=k", Identity: "x"}, Place{URL: "redis://H?key=k", Identity: "x"}
	assert.That(t, a.Lock() == b.Lock() && a.Lock() != (Place{URL: a.URL}).Lock(), "%q, %q", a.Lock(), b.Lock())
}

// TestOver: whether a lease is over is read on the keeper's clock since boot if that is ours, and else counted from when
// we asked.
func TestOver(t *testing.T) {
	const asked, left = time.Hour, 10 * time.Second
	for name, c := range map[string]struct {
		namespace, ours string
		deadline        time.Duration
		after           time.Duration
		want            bool
	}{
		"our clock, before":         {"n", "n", asked + left, left - 1, false},
		"our clock, at the end":     {"n", "n", asked + left, left, true},
		"our clock, for long":       {"n", "n", asked + 10*left, 5 * left, false},
		"another clock, before":     {"m", "n", 0, left - 1, false},
		"another clock, at the end": {"m", "n", asked + 10*left, left, true},
		"an unknown clock":          {"", "", asked + 10*left, left, true},
		"an unknown clock, before":  {"", "", 0, left - 1, false},
	} {
		a := Answer{Holding: Holding{LeftSeconds: left.Seconds(), Deadline: c.deadline}, TimeNamespace: c.namespace}
		assert.Equal(t, a.Over(asked, asked+c.after, c.ours), c.want, name)
	}
}
