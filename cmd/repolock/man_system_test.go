//go:build system

package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestManualRenders: who prints manual pages has nothing to say against it, and shows a
// flag as it is typed.
func TestManualRenders(t *testing.T) {
	for line, shows := range map[string]string{
		"mandoc -Tlint -Wwarning":    "",
		"groff -man -ww -Tutf8 -z":   "",
		"mandoc -Tascii":             "--if-unreachable=fail|run",
		"groff -man -Tutf8 -P-c -ww": "--if-unreachable=fail|run",
	} {
		args := strings.Fields(line)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdin = strings.NewReader(manual() + "\n")
		out, err := cmd.CombinedOutput()
		if err != nil || shows == "" && len(out) > 0 || !strings.Contains(overstrike.ReplaceAllString(string(out), ""), shows) {
			t.Errorf("%s: %v: %.300s", line, err, out)
		}
	}
}

// overstrike is how bold is printed.
var overstrike = regexp.MustCompile(".\b")
