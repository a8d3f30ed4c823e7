package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

const root = "../../.."

// TestMutantsFit: the file of each mutant has the text that it replaces, once, and still is Go with the
// other text. Its name is its own. A change of the text in the program changes the list.
func TestMutantsFit(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range all() {
		text, _, _, err := m.mutate(root)
		if err == nil {
			_, err = parser.ParseFile(token.NewFileSet(), m.file, text, parser.SkipObjectResolution)
		}
		assert.That(t, err == nil, "%s: %v", m.name, err)
		if seen[m.name] {
			t.Errorf("two mutants are called %q", m.name)
		}
		seen[m.name] = true
	}
}

// TestEachRuleFinds: each rule of lockingtest finds a mutant.
func TestEachRuleFinds(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "locking/lockingtest/lockingtest.go"))
	assert.OK(t, err)
	rules := regexp.MustCompile(`\n\t\{"([^"]+)", \w+\},`).FindAllStringSubmatch(string(raw), -1)
	assert.Need(t, len(rules) > 20, "%d rules", len(rules))
	for _, rule := range rules {
		finds := func(m mutant) bool { return strings.HasSuffix(m.by.run, "/^("+subtest(rule[1])+")$") }
		assert.That(t, slices.ContainsFunc(contractMutants, finds), "no mutant is found by %q", rule[1])
	}
}
