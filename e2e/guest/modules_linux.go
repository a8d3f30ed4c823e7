package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// loadModules loads all kernel modules of a directory. A module whose dependency isn't
// loaded yet is refused with ENOENT, and tried again after the others.
func loadModules(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil {
		return err
	}
	for len(left) > 0 {
		var refused []string
		for _, name := range left {
			err := loadModule(name)
			switch {
			case errors.Is(err, unix.ENOENT):
				refused = append(refused, name)
			case err != nil && !errors.Is(err, unix.EEXIST):
				return fmt.Errorf("load %s: %w", name, err)
			}
		}
		if len(refused) == len(left) {
			return fmt.Errorf("load %q: a symbol is missing", refused)
		}
		left = refused
	}
	return nil
}

func loadModule(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}
