package dir

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
)

// maxScans bounds the scans of a directory that never comes to rest.
const maxScans = 16

// settled gives the names in a directory, sorted, those of directories with
// a slash at the end.
//
// A single scan isn't enough: where a file is renamed over another, some file
// systems (btrfs, tmpfs) move the name within the directory, to where a scan
// under way has been already or won't come any more, and it shows neither the
// old file nor the new one. POSIX allows that. A lock that is being refreshed
// must not be overlooked, so the directory is scanned until two scans in a row
// find the same, and a name counts that any of them found. One that was there
// all along is missed only if it was replaced during each of them, and the
// refreshes of a lock are seconds apart.
func settled(scan func() ([]string, error)) ([]string, error) {
	var all, last []string
	for n := range maxScans {
		next, err := scan()
		if err != nil {
			return nil, err
		}
		next = set(next) // a name that moves may also be seen twice
		if n > 0 && slices.Equal(last, next) {
			break
		}
		all, last = set(slices.Concat(all, next)), next
	}
	return all, nil
}

// set sorts names and leaves out those that are there already.
func set(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// scan gives the names as they come. It opens the directory anew, as one that
// is rewound may stop where it ended when it was opened.
func scan(ctx context.Context, d *os.Root, wanted func(name string) bool) ([]string, error) {
	f, err := d.Open(".")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var names []string
	for {
		entries, err := f.ReadDir(1024)
		for _, entry := range entries {
			name := entry.Name()
			if isTemp(name) {
				continue
			}
			if entry.IsDir() {
				name += "/"
			}
			if wanted(name) {
				names = append(names, name)
			}
		}
		switch {
		case err == io.EOF, errors.Is(err, fs.ErrNotExist):
			return names, ctx.Err()
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}
