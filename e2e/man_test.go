//go:build unix && programs && !minio

package e2e

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// codeLines are lines of the text on URLs, which stay lines.
const codeLines = "Amazon S3, or what speaks S3\n         minio://HOST:PORT/BUCKET/PREFIX MinIO\n"

// TestManualRenders: the readers of manual pages don't complain, and show a flag as it is
// typed.
func TestManualRenders(t *testing.T) {
	manual, err := exec.Command(filepath.Join(bin, "repolock"), "man").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line, shows := range map[string]string{
		"mandoc -Tlint -Wwarning":     "",
		"groff -man -ww -Tutf8 -z":    "",
		"mandoc -Tascii":              "--if-unreachable=fail|run",
		"groff -man -Tutf8 -P-c -ww":  "--if-unreachable=fail|run",
		"mandoc -Tascii -Owidth=100":  codeLines,
		"groff -man -Tascii -P-c -ww": codeLines,
	} {
		args := strings.Fields(line)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdin = bytes.NewReader(manual)
		out, err := cmd.CombinedOutput()
		if err != nil || shows == "" && len(out) > 0 || !strings.Contains(overstrike.ReplaceAllString(string(out), ""), shows) {
			t.Errorf("%s: %v: %.300s", line, err, out)
		}
	}
}

// overstrike matches bold text as it is printed.
var overstrike = regexp.MustCompile(".\b")
