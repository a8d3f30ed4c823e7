package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Places are where a file is looked for, the first first: below $XDG_CONFIG_HOME, or what
// the system has in its place, and where the system has one for everybody, there.
func Places() []string {
	var places []string
	if dir, err := os.UserConfigDir(); err == nil {
		places = append(places, filepath.Join(dir, "repolock", "config.toml"))
	}
	return append(places, system...)
}

// System is the file for everybody, if the system has one.
func System() []string { return system }

// Find is the first file that is there, or "". A link that leads nowhere is there, and so
// is a file that may not be read: the next one would be another.
func Find() string {
	for _, path := range Places() {
		if _, err := os.Lstat(path); !missing(err) {
			return path
		}
	}
	return ""
}

// missing: a home that isn't a directory, or isn't ours, as after a change of the user
// that leaves HOME as it was, has none.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission) && !homely()
}

// homely reports whether we may look into our home: what we may not look into there is
// for us, and another file isn't for it to be replaced by.
func homely() bool {
	home, err := os.UserHomeDir()
	if err != nil {
		return false
	}
	_, err = os.Lstat(filepath.Join(home, ".config"))
	return !errors.Is(err, fs.ErrPermission)
}
