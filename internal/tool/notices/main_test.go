package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestSystems: the systems are the targets of the packages.
func TestSystems(t *testing.T) {
	raw, err := os.ReadFile("../../../.goreleaser.yaml")
	assert.OK(t, err)
	var built []string
	for _, m := range regexp.MustCompile(`(?m)^ +(?:- |targets: \[)(\w+)_(amd64|arm64)(?:_v1\])?$`).FindAllStringSubmatch(string(raw), -1) {
		built = append(built, m[1]+"/"+m[2])
	}
	slices.Sort(built)
	assert.Equal(t, built, slices.Sorted(slices.Values(systems)), "systems of the packages")
}

// TestFiles: texts are found under all their names, in the module's directory and beside
// the linked packages; a module without a license is an error.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"one/LICENSE":         "same \r\nlicense\r\n",
		"one/inner/NOTICE.md": "of the inside",
		"one/api_license.go":  "package one",
		"one/notices.go":      "package one",
		"two/COPYING":         "\nsame\nlicense",
		"two/PATENTS":         "a grant",
		"none/NOTICE":         "a notice is no license",
		"three/Licence-BSD":   "another",
		"three/LICENSES/MIT":  "not read: a directory is no text",
	} {
		path := filepath.Join(dir, name)
		assert.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		assert.OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	in := func(names ...string) (dirs []string) {
		for _, name := range names {
			dirs = append(dirs, filepath.Join(dir, name))
		}
		return dirs
	}
	got, err := notices(map[string][]string{"one": in("one/inner", "one"), "two": in("two"), "three": in("three")})
	assert.OK(t, err)
	line, dash := strings.Repeat("=", 72), strings.Repeat("-", 72)
	want := head
	for _, entry := range [][2]string{{"one", "of the inside"}, {"one\ntwo", "same\nlicense"}, {"three", "another"}, {"two", "a grant"}} {
		want += "\n" + line + "\n" + entry[0] + "\n" + dash + "\n\n" + entry[1] + "\n"
	}
	assert.That(t, got == want, "got\n%s\nwant\n%s", got, want)
	_, err = notices(map[string][]string{"none": in("none")})
	assert.That(t, err != nil && strings.Contains(err.Error(), "none"), "%v", err)
}
