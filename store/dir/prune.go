package dir

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// abandoned is how old a temporary file is that no Put is still writing: old enough that
// no clock which is hours wrong makes a new one look so.
const abandoned = 24 * time.Hour

// kept are directories that other programs make, and then write to without making them again.
var kept = []string{"index", "index/lock.shared"}

// prune removes the directories that have become empty, from dir upwards, but
// never the root, nor those that other programs make, too. A Put that has just made
// one makes it again. It is tidiness, so what fails is left for another time.
func (s *Store) prune(root *directory, dir string, now time.Time) {
	for s.prunes(dir) {
		parent, name := split(dir)
		d, err := openDir(root, parent)
		if err != nil {
			return
		}
		err = rmdir(d, name)
		d.Close()
		if err != nil {
			break // most likely there is something in it
		}
		dir = parent
	}
	sweep(root, dir, now)
}

// made are the directories that this process has made, by their paths.
var made sync.Map

// prunes reports whether a directory is ours to remove: one that this process has made, or that
// locks alone are in.
func (s *Store) prunes(dir string) bool {
	if dir == "" || slices.Contains(kept, dir) {
		return false
	}
	_, mine := made.Load(s.path + "/" + dir)
	return mine || strings.HasPrefix(dir, kept[0]+"/")
}

// sweep removes the temporary files that dead processes left in a directory.
func sweep(root *directory, dir string, now time.Time) {
	d, err := openDir(root, dir)
	if err != nil {
		return
	}
	defer d.Close()
	self, err := d.Open(".")
	if err != nil {
		return
	}
	defer self.Close()
	names, _ := self.Readdirnames(-1)
	for _, name := range names {
		if !isTemp(name) {
			continue
		}
		switch info, err := d.Lstat(name); {
		case err != nil || now.Sub(info.ModTime()) <= abandoned:
		case info.Mode().IsRegular():
			_ = d.Remove(name)
		case info.IsDir():
			_ = rmdir(d, name) // one that was to get its mode
		}
	}
}
