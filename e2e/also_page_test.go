//go:build unix && !minio

package e2e

import (
	"os"
	"regexp"
	"testing"
)

// each runs the blocks of a page one by one. What each prints must match.
func (p *page) each(blocks []string, wants ...string) {
	p.t.Helper()
	if len(blocks) != len(wants) {
		p.t.Fatalf("%d blocks, and %d are tested", len(blocks), len(wants))
	}
	for i, want := range wants {
		if out := p.sh(blocks[i]); !regexp.MustCompile("(?s)" + want).MatchString(out) {
			p.t.Errorf("%q isn't in the output of\n%s\n%s", want, blocks[i], out)
		}
	}
}

// program puts a program into the PATH of the page.
func (p *page) program(name, script string) {
	p.t.Helper()
	if err := os.MkdirAll(p.path("bin"), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(p.path("bin/"+name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		p.t.Fatal(err)
	}
}

// alone returns a page whose commands have no repository.
func alone(t *testing.T, name string) *page {
	t.Helper()
	p := newPage(t, name)
	p.env = []string{"REPOLOCK_CONFIG="}
	return p
}

// with returns the page whose commands have a repository.
func (p *page) with(repo string) *page {
	p.t.Helper()
	if err := os.Mkdir(p.path(repo), 0o700); err != nil {
		p.t.Fatal(err)
	}
	site := *p.site
	site.env = append([]string{"REPOLOCK_REPO=" + p.path(repo)}, site.env...)
	return &page{&site, p.Page}
}
