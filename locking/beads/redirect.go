package beads

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/locking"
)

// redirectName is the name of a file in a .beads directory. In a worktree it names the .beads directory of the main
// repository.
const redirectName = "redirect"

// Database returns the absolute path of the directory whose lock file counts for a .beads directory. It is dir itself,
// unless dir has a file redirect, which Database follows as bd does. The first line of that file that is neither empty
// nor a comment (#) is the path of another .beads directory, relative to the parent of dir. A redirect in that other
// directory has no effect. bd ignores a redirect to a missing directory, and so does Database. If this user can't read
// the redirect, Database returns dir and an error, because bd might be able to.
func Database(dir string) (string, error) {
	d, _, err := follow(dir)
	return d, err
}

// follow is Database. ignored is the target of a redirect to a missing directory, or "".
func follow(dir string) (database, ignored string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", "", err
	}
	path := filepath.Join(dir, redirectName)
	target, err := readRedirect(path)
	if target == "" || err != nil {
		return dir, "", err
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(dir), target)
	}
	real, err := filepath.EvalSymlinks(target)
	if absent(err) {
		return dir, target, nil
	}
	if err != nil {
		return dir, "", fmt.Errorf("%s names %s: %w", path, target, err)
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return dir, target, err
	}
	return real, "", nil
}

// readRedirect returns the path in a redirect, or "" if there is none.
func readRedirect(path string) (string, error) {
	if info, err := os.Stat(path); absent(err) || err == nil && info.IsDir() {
		return "", nil
	}
	f, err := regular.Open(path)
	if absent(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(body) > maxSize {
		err = fmt.Errorf("%w: %s is larger than %d bytes", locking.ErrUnfit, path, maxSize)
	}
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(body)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line, nil
		}
	}
	return "", nil
}

// absent reports whether an error means that there is no such file.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// redirected returns an error of a class if the redirect no longer names the directory that Open found.
func (b *Backend) redirected(class error) error {
	switch now, err := Database(b.named); {
	case err != nil:
		return err
	case now != b.dir:
		return fmt.Errorf("%w: bd now works on %s, not on %s, because %s has changed", class, now, b.dir, filepath.Join(b.named, redirectName))
	}
	return nil
}
