package locking_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPage: each example that docs/locking.md names is one that go test runs, and each is named.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../docs/locking.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile("`(Example\\w*)`").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(string(source), "\nfunc "+name[1]+"() {\n") {
			t.Errorf("there is no %s", name[1])
		}
	}
	for _, name := range regexp.MustCompile(`(?m)^func (Example\w*)`).FindAllStringSubmatch(string(source), -1) {
		if !strings.Contains(string(page), "`"+name[1]+"`") {
			t.Errorf("the page doesn't name %s", name[1])
		}
	}
}
