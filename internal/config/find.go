package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Places returns the paths at which Find looks, in order: below $XDG_CONFIG_HOME or the
// system's equivalent, then the file for all users if the system has one.
func Places() []string {
	var places []string
	if dir, err := os.UserConfigDir(); err == nil {
		places = append(places, filepath.Join(dir, "repolock", "config.toml"))
	}
	return append(places, system...)
}

// System returns the path of the file for all users, if the system has one.
func System() []string { return system }

// Find returns the first existing file, or "". A broken link counts as existing, and so does
// an unreadable file: the next file could name another lock.
func Find() string {
	for _, path := range Places() {
		if _, err := os.Lstat(path); !missing(path, err) {
			return path
		}
	}
	return ""
}

// missing reports whether an error means that there is no file. A home that isn't a directory
// or isn't ours (su keeps HOME) has none; nor has a system whose settings we can't read.
func missing(path string, err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission) && !forUs(path)
}

// forUs reports whether an unreadable place is below a readable home: then it is ours, and no
// other file can replace it.
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
