package dir

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// looks is a context that counts the calls of Err.
type looks struct {
	context.Context
	n int
}

func (l *looks) Err() error {
	l.n++
	return l.Context.Err()
}

// TestHasOther: a file whose key doesn't begin with the prefix is found, wherever it is. Temporary files and empty
// folders are no objects. With a thousand such files, HasOther looks at one.
func TestHasOther(t *testing.T) {
	var many []string
	for n := range 1000 {
		many = append(many, fmt.Sprint("index/", n))
	}
	for _, c := range []struct {
		paths []string // a folder's ends with a slash
		other bool
	}{
		{nil, false},
		{[]string{"index/lock.exclusive", "index/lock.shared/x", "index/locks/n/lock.shared/x", "index/lock-fence"}, false},
		{[]string{"index/", "data/00/", "data/ff/", ".repolock-x.tmp", "data/.repolock-y.tmp/z"}, false},
		{[]string{"config"}, true},
		{[]string{"index/lock.exclusive", "index/loc"}, true},
		{[]string{"index/lock.exclusive", "data/00/", "data/ff/", "data/ff/x"}, true},
		{[]string{"lock.exclusive"}, true},
		{many, true},
	} {
		s := opened(t)
		for _, path := range c.paths {
			full := filepath.Join(s.path, path)
			if strings.HasSuffix(path, "/") {
				assert.OK(t, os.MkdirAll(full, 0o700))
				continue
			}
			assert.OK(t, os.MkdirAll(filepath.Dir(full), 0o700))
			assert.OK(t, os.WriteFile(full, nil, 0o600))
		}
		ctx := &looks{Context: t.Context()}
		found, err := s.HasOther(ctx, "index/lock")
		assert.That(t, err == nil && found == c.other, "%.100q: %t, %v", c.paths, found, err)
		assert.That(t, ctx.n < 20, "%.100q: %d looks", c.paths, ctx.n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s := opened(t)
	assert.Is(t, assert.Err(s.HasOther(ended, "index/lock")), context.Canceled)
	assert.OK(t, os.Remove(s.path))
	assert.Is(t, assert.Err(s.HasOther(t.Context(), "index/lock")), store.ErrNotFound)
}
