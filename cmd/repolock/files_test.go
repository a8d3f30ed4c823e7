package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tree returns all files below a directory, with their sizes and beginnings.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil || d.IsDir():
			return err
		case !d.Type().IsRegular(): // a keeper's socket
			files[strings.TrimPrefix(name, dir)] = d.Type().String()
			return nil
		}
		content, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		files[strings.TrimPrefix(name, dir)] = fmt.Sprintf("%d %.100q", len(content), content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
