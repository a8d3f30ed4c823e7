package main

import (
	"os"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestRun runs the real go test on a module of its own, and checks its output and exit code.
func TestRun(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		assert.OK(t, os.WriteFile(name, []byte(text), 0o600))
	}
	const begin = "package p\n\nimport \"testing\"\n\nfunc TestFirst(t *testing.T) { t.Log(\"unseen\") }\n"
	write("go.mod", "module example.org/p\n\ngo 1.26\n")
	for name, test := range map[string]struct {
		text   string
		code   int
		says   []string
		closes string
	}{
		"passes":       {"", 0, []string{"ok  \texample.org/p\t"}, "1 passed, 0 failed"},
		"fails":        {"func TestSecond(t *testing.T) { t.Error(\"seen\") }", 1, []string{"seen", "--- FAIL: TestSecond", "FAIL\texample.org/p\t"}, "1 passed, 1 failed"},
		"isn't built":  {"func TestSecond(t *testing.T) { undefined() }", 1, []string{"undefined: undefined", "FAIL\texample.org/p [build failed]"}, "0 passed, 1 failed"},
		"crashes":      {"func TestSecond(t *testing.T) { go panic(\"oh\"); select {} }", 1, []string{"panic: oh", "goroutine ", "FAIL\texample.org/p\t"}, ""},
		"is replaced":  {"func TestSecond(t *testing.T) { syscall.Exec(\"/bin/true\", []string{\"true\"}, nil) }", 1, []string{"not ended: example.org/p"}, "2 passed, 1 failed"},
		"ends for all": {"func TestSecond(t *testing.T) { os.Exit(0) }", 1, []string{"FAIL\texample.org/p\t"}, ""},
	} {
		text := begin + test.text + "\n"
		if strings.Contains(text, "os.Exit") {
			text = strings.Replace(text, "import \"testing\"", "import (\n\t\"os\"\n\t\"testing\"\n)", 1)
		}
		if strings.Contains(text, "syscall.Exec") {
			text = strings.Replace(text, "import \"testing\"", "import (\n\t\"syscall\"\n\t\"testing\"\n)", 1)
		}
		write("p_test.go", text)
		var out strings.Builder
		code, err := run("go", []string{"-count=1", "."}, &out)
		assert.That(t, code == test.code && err == nil, "%s: exit code %d, %v", name, code, err)
		for _, says := range test.says {
			assert.That(t, strings.Contains(out.String(), says), "%s: no %q", name, says)
		}
		assert.That(t, strings.HasPrefix(out.String(), "go test -count=1 .\n"), "%s: it doesn't begin with what it runs: %s", name, out.String())
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		closes := lines[len(lines)-1]
		assert.That(t, test.closes == "" || closes == test.closes, "%s: %s", name, out.String())
		assert.That(t, strings.HasSuffix(closes, " 0 failed") == (code == 0) && !strings.Contains(out.String(), "unseen"), "%s: %s", name, out.String())
	}
	code, err := run("./no-such-program", nil, &strings.Builder{})
	assert.That(t, code != 0 && err != nil, "%d, %v", code, err)
}
