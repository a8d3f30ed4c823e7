//go:build unix

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestScriptsDoc: each script of docs/scripts.md is run as it stands there.
func TestScriptsDoc(t *testing.T) {
	raw, err := os.ReadFile("../../docs/scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(raw), -1)
	says := []string{
		`(?s)^first step\nMODE .*\nshared  nightly .* live .*\nsecond step\ndone\n$`,
		`(?s)^beside it\n.*refused with 75\n$`,
	}
	if len(blocks) != len(says) {
		t.Fatalf("%d scripts, and %d are tested", len(blocks), len(says))
	}
	for i, block := range blocks {
		d := newDesk(t)
		cmd := d.command("sh", "-c", block[1])
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil || !regexp.MustCompile(says[i]).Match(out) {
			t.Errorf("%v\n%s%s", err, out, errs.String())
		}
		d.free()
	}
}
