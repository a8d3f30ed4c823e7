package regular

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxLinks is the number of links that Target follows at most.
const maxLinks = 40

// Target returns the path of the regular file to which a path leads through links. The file needn't exist. A rename to
// the returned path replaces neither a link nor a device.
func Target(path string) (string, error) {
	if err := present(path, false); err != nil { // it also follows links without a text, as in /proc/self/fd
		return "", err
	}
	path, err := follow(path)
	if err != nil {
		return "", err
	}
	return path, present(path, false)
}

// follow returns the path to which a path leads through links.
func follow(path string) (string, error) {
	for range maxLinks {
		in, name := filepath.Split(path) // filepath.Dir would resolve .. before the links
		dir, err := filepath.EvalSymlinks(cmp.Or(in, "."))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = dir + string(filepath.Separator) + to
		}
		path = to
	}
	return "", fmt.Errorf("%s: too many links", path)
}

// Same reports whether two paths lead to one regular file. The file needn't exist.
func Same(a, b string) bool {
	var files [2]string
	var infos [2]fs.FileInfo
	for i, path := range [...]string{a, b} {
		target, err := Target(path)
		if err != nil {
			return false
		}
		if files[i], err = filepath.Abs(target); err != nil {
			return false
		}
		infos[i], _ = os.Stat(target)
	}
	return files[0] == files[1] || infos[0] != nil && infos[1] != nil && os.SameFile(infos[0], infos[1])
}
