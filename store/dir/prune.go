package dir

import (
	"os"
	"time"
)

// abandoned is how old a temporary file is that no Put is still writing.
const abandoned = time.Hour

// prune removes the directories that have become empty, from dir upwards, but
// never the root. A Put that has just made one makes it again. It is tidiness,
// so what fails is left for another time.
func prune(root *os.Root, dir string, now time.Time) {
	for dir != "" {
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

// sweep removes the temporary files that dead processes left in a directory.
func sweep(root *os.Root, dir string, now time.Time) {
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
	for {
		entries, err := self.ReadDir(1024)
		for _, entry := range entries {
			if !isTemp(entry.Name()) {
				continue
			}
			info, err := d.Lstat(entry.Name())
			if err == nil && info.Mode().IsRegular() && now.Sub(info.ModTime()) > abandoned {
				_ = d.Remove(entry.Name())
			}
		}
		if err != nil {
			return
		}
	}
}
