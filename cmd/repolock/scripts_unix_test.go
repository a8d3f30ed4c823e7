//go:build unix

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/docblocks"
)

// TestScriptsDoc runs each script of docs/scripts.md unchanged.
func TestScriptsDoc(t *testing.T) {
	page, err := docblocks.Read("../../docs/scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := page.Fenced["sh"]
	says := []string{
		`(?s)^first step\nVERDICT .*\nlive +shared +nightly .*\nsecond step\ndone\n$`,
		`(?s)^beside it\n.*refused with 75\n$`,
	}
	if len(blocks) != len(says) {
		t.Fatalf("%d scripts, and %d are tested", len(blocks), len(says))
	}
	for i, block := range blocks {
		d := newDesk(t)
		cmd := d.command("sh", "-c", block)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil || !regexp.MustCompile(says[i]).Match(out) {
			t.Errorf("%v\n%s%s", err, out, errs.String())
		}
		d.free()
	}
}
