package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestCheck: a wrong type in a file that only another system has, or in a test of it, is an error of that system alone.
func TestCheck(t *testing.T) {
	const right = "package b\n\nfunc F() error { return nil }\n"
	for name, c := range map[string]struct{ file, text, says string }{
		"no error":           {"a_windows.go", "package b\n\nvar _ = F\n", ""},
		"a type":             {"a_windows.go", "package b\n\nvar _ int = F\n", "a_windows.go:3:"},
		"in a function":      {"a_windows.go", "package b\n\nfunc g() { _ = 1 + F() }\n", "a_windows.go:3:"},
		"a name":             {"a_windows.go", "package b\n\nvar _ = G\n", "undefined: G"},
		"an unused variable": {"a_windows.go", "package b\n\nfunc g() { x := 1 }\n", "declared and not used: x"},
		"no Go":              {"a_windows.go", "package b\n\nfunc\n", "expected 'IDENT'"},
		"a test":             {"a_windows_test.go", "package b\n\nvar _ int = F\n", "a_windows_test.go:3:"},
		"a test outside":     {"a_windows_test.go", "package b_test\n\nimport \"a/b\"\n\nvar _ int = b.F\n", "a_windows_test.go:5:"},
		"an import":          {"a_windows.go", "package b\n\nimport _ \"a/none\"\n", "a/none"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range map[string]string{"go.mod": "module a/b\n\ngo 1.26.0\n", "a.go": right, c.file: c.text} {
				assert.OK(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
			}
			assert.OK(t, check(root, "linux/amd64"))
			err := check(root, "windows/amd64")
			assert.That(t, (err != nil) == (c.says != "") && strings.Contains(fmt.Sprint(err), c.says), "%v", err)
		})
	}
}
