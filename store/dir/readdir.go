package dir

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
)

// maxScans bounds the scans of a directory that changes all the time.
const maxScans = 16

// settled returns the sorted names in a directory, those of directories with a slash at
// the end.
//
// A single scan isn't enough. When a file is renamed over another, some file systems
// (btrfs, tmpfs) move the name within the directory, to a place that a scan under way has
// passed already, and the scan shows neither the old file nor the new one. POSIX allows
// that. A lock that is being refreshed must not be missed, so settled scans until two scans
// in a row find the same names, and returns all names of all scans. A name that was there
// all the time is missed only if it was replaced during each scan, and the refreshes of a
// lock are seconds apart.
func settled(scan func() ([]string, error)) ([]string, error) {
	var all, last []string
	for n := range maxScans {
		next, err := scan()
		if err != nil {
			return nil, err
		}
		next = set(next) // a name that moves can also be seen twice
		if n > 0 && slices.Equal(last, next) {
			break
		}
		all, last = set(slices.Concat(all, next)), next
	}
	return all, nil
}

// set sorts names and removes duplicates.
func set(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// scan returns the names in the directory's order. It opens the directory anew, because a
// rewound one can stop where it ended when it was opened.
//
// os.File.ReadDir won't do: where a folder doesn't have the types of its entries (FUSE), it leaves out each that can't
// be looked at. That one can be there: a mount can remember that a name was missing, or be replacing its file. So
// scan returns such a name both as a file's and as a directory's.
func scan(ctx context.Context, d *directory, wanted func(name string) bool) ([]string, error) {
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
		entries, err := f.Readdirnames(1024)
		for _, name := range entries {
			if isTemp(name) || !wanted(name) && !wanted(name+"/") {
				continue
			}
			info, err := d.Lstat(name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			if (err != nil || !info.IsDir()) && wanted(name) {
				names = append(names, name)
			}
			if (err != nil || info.IsDir()) && wanted(name+"/") {
				names = append(names, name+"/")
			}
		}
		switch {
		case err == io.EOF, errors.Is(err, fs.ErrNotExist):
			return names, ctx.Err()
		case err != nil:
			return nil, cant("list", d.path, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}
