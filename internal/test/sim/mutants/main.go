// Mutants puts one bug after another into the lock's engine, and has the simulator
// look for it. A simulator that misses one is blind in that place. What it doesn't simulate,
// odd stores and the command, is left to the test that has the rule's name.
//
// The engine's files aren't touched: go test -overlay compiles others in their
// place.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	seeds := flag.Int("seeds", 10_000, "in how many histories a bug must be found")
	from := flag.Int("from", 1, "the first bug to try")
	flag.Parse()
	if err := run(*seeds, mutants[*from-1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(seeds int, mutants []mutant) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%-64s %8s  %s\n", "bug", "seed", "found as")
	missed := 0
	for _, m := range mutants {
		seed, kind, err := m.hunt(dir, m.simulated(seeds))
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if seed == "" {
			missed++
			seed, kind = "-", "NOT FOUND"
		}
		fmt.Printf("%-64s %8s  %s\n", m.name, seed, kind)
	}
	fmt.Printf("%d of %d bugs found, within %d histories each\n", len(mutants)-missed, len(mutants), seeds)
	if missed > 0 {
		return fmt.Errorf("%d of %d not found", missed, len(mutants))
	}
	return nil
}

// mutant is a bug: a text of a file, which is there once, and what is put in its
// place.
type mutant struct{ name, file, old, new string }

// simulated are the arguments of go test that look for the bug in histories, unless a test of
// its own does.
func (m mutant) simulated(seeds int) []string {
	if t, ok := tested[m.name]; ok {
		return []string{t.pkg, "-run=" + t.run}
	}
	return []string{"./internal/test/sim", "-timeout=0", "-run=^TestSeeds$", "-brief", fmt.Sprintf("-seeds=%d", seeds), "-scene=" + about[m.name]}
}

// mutate is the file with the bug in it.
func (m mutant) mutate(root string) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(raw), m.old); n != 1 {
		return nil, fmt.Errorf("%s has %d times what is to be replaced: %q", m.file, n, m.old)
	}
	return []byte(strings.Replace(string(raw), m.old, m.new, 1)), nil
}

var (
	found  = regexp.MustCompile(`found: seed (\d+): (\w+)`)
	failed = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
)

// hunt returns the seed that found the bug, and as what; or the test that did.
func (m mutant) hunt(dir string, args []string) (seed, kind string, err error) {
	text, err := m.mutate(".")
	if err != nil {
		return "", "", err
	}
	mutated := filepath.Join(dir, "mutated.go")
	if err := os.WriteFile(mutated, text, 0o600); err != nil {
		return "", "", err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
	if err == nil {
		err = os.WriteFile(overlay, raw, 0o600)
	}
	if err != nil {
		return "", "", err
	}
	cmd := exec.Command("go", append([]string{"test", "-vet=off", "-overlay=" + overlay}, args...)...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", "", nil
	}
	if match := found.FindStringSubmatch(string(out)); match != nil {
		return match[1], match[2], nil
	}
	if match := failed.FindStringSubmatch(string(out)); match != nil && tested[m.name].pkg != "" {
		return "test", match[1], nil
	}
	return "", "", fmt.Errorf("go test: %w\n%s", err, out)
}
