package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
		if _, err := os.Lstat(path); !missing(path, err) {
			return path
		}
	}
	return ""
}

// missing: a home that isn't a directory, or isn't ours, as after a change of the user
// that leaves HOME as it was, has none; nor has a system whose settings are closed to us.
func missing(path string, err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission) && !forUs(path)
}

// forUs reports whether a place that we may not look into is below a home that we may: then
// it is for us, and no other file can stand for it.
func forUs(path string) bool {
	if slices.Contains(system, path) {
		return false
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return false
	}
	_, err = os.Lstat(filepath.Join(home, ".config"))
	return !errors.Is(err, fs.ErrPermission)
}
