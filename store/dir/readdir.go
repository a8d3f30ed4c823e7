package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// maxLooks bounds the looks for a name that is listed and isn't there, each a millisecond after the one
// before. On bindfs one or two are enough.
const maxLooks = 100

// find calls look, which looks for a name in a directory, until it returns another error than fs.ErrNotExist.
//
// On a file system that isn't known to be local, a name can seem to be missing. One in a process (FUSE: bindfs,
// ntfs-3g, exfat) lacks it for a moment while it is being replaced, although rename(2) doesn't allow that. A
// mount that caches names lacks one that another machine has made, for as long as the mount was told to
// remember that. So a name is missing there only if its folder, read anew, doesn't list it either. If it
// is still listed after maxLooks, that is no answer but an error.
func (s *Store) find(ctx context.Context, d *directory, name string, look func() error) error {
	for range maxLooks {
		err := look()
		if !errors.Is(err, fs.ErrNotExist) || s.local {
			return err
		}
		listed, lerr := s.names(ctx, d, func(n string) bool { return n == name })
		if lerr != nil || len(listed) == 0 {
			return cmp.Or(lerr, err)
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("%s is listed, and isn't there to be opened: if this mount remembers missing names, mount it with "+
		"negative_timeout=0 (FUSE) or lookupcache=none (NFS)", d.full(name))
}

// names returns the sorted names in a directory, read anew, that are wanted.
func (s *Store) names(ctx context.Context, d *directory, wanted func(name string) bool) ([]string, error) {
	if !s.local {
		d.reread()
	}
	return settled(func() ([]string, error) { return s.scan(ctx, d, wanted) })
}

// reread makes the next scan read the directory anew, if its file system caches listings: sshfs shows
// those of up to 20 s ago, and NFS, SMB and rclone have such caches too. A file that is made and removed
// ends what this machine has cached of its directory. A directory that can't be written into is scanned
// as it is.
func (d *directory) reread() {
	temp := newTemp()
	if f, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		_ = f.Close()
		_ = d.root.Remove(temp)
	}
}

// maxScans bounds the scans of a directory that changes all the time.
const maxScans = 16

// settled returns the sorted names that scans of a directory find.
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

// scan returns the wanted names in the directory's order, each as a file's and, with a slash at its end, as a
// directory's. It opens the directory anew, because a rewound one can stop where it ended when it was opened.
//
// It doesn't look which of the two a name is: the look can fail although the name is there (see find). Where a
// folder doesn't have the types of its entries (FUSE), os.File.ReadDir leaves out such a name.
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
		for _, name := range slices.DeleteFunc(entries, isTemp) {
			for _, name := range []string{name, name + "/"} {
				if wanted(name) {
					names = append(names, name)
				}
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
