// Package lazyregexp compiles regular expressions when they are first used. A process needs few
// of those that its packages declare, and a bounded repeat, such as {0,126}, takes longer than all
// else that a package does before main.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a regular expression for use by several goroutines at once.
type Regexp struct{ compiled func() *regexp.Regexp }

// New returns the regular expression. Its first use panics if it can't be compiled, so a test
// must use it.
func New(expression string) Regexp {
	return Regexp{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })}
}

// MatchString is that of package regexp.
func (r Regexp) MatchString(s string) bool { return r.compiled().MatchString(s) }

// FindStringSubmatch is that of package regexp.
func (r Regexp) FindStringSubmatch(s string) []string { return r.compiled().FindStringSubmatch(s) }

// ReplaceAllString is that of package regexp.
func (r Regexp) ReplaceAllString(s, with string) string {
	return r.compiled().ReplaceAllString(s, with)
}
