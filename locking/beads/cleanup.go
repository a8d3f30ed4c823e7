package beads

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Cleanup removes a stale lock, and files beside it that a process left behind a day ago or
// earlier.
func (b *Backend) Cleanup(ctx context.Context) error {
	if seen, err := b.Inspect(ctx, Key); err != nil {
		return err
	} else if seen != nil && seen.Stale {
		if _, err := b.Break(ctx, seen, true); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return refused(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !isTemp(e.Name()) ||
			b.opts.Clock.Now().Sub(info.ModTime()) < 24*time.Hour {
			continue
		}
		if err := os.Remove(filepath.Join(b.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return refused(err)
		}
	}
	return ctx.Err()
}

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}
