// Package lazyregexp compiles a regular expression at its first use. A process uses few of the expressions that its
// packages declare. To compile a bounded repeat, such as {0,126}, takes longer than the rest of a package's
// initialisation.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a regular expression for use by several goroutines at once.
type Regexp struct{ compiled func() *regexp.Regexp }

// New returns a regular expression. If it can't be compiled, its first use panics. So a test must use it.
func New(expression string) Regexp {
	return Regexp{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })}
}

// MatchString is as in package regexp.
func (r Regexp) MatchString(s string) bool { return r.compiled().MatchString(s) }

// FindStringSubmatch is as in package regexp.
func (r Regexp) FindStringSubmatch(s string) []string { return r.compiled().FindStringSubmatch(s) }

// ReplaceAllString is as in package regexp.
func (r Regexp) ReplaceAllString(s, with string) string {
	return r.compiled().ReplaceAllString(s, with)
}
