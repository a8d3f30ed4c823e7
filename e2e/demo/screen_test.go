//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"
)

// TestScreen: a screen shows what a terminal would, however the bytes are divided.
func TestScreen(t *testing.T) {
	for _, c := range []struct{ what, written, want string }{
		{"lines", "one\r\ntwo", "one|two|"},
		{"overwritten", "one two\rtwo", "two two||"},
		{"erased to the right", "one two\rtwo\x1b[K", "two||"},
		{"erased below", "one\r\ntwo\b\b\x1b[J", "one|t|"},
		{"wrapped", "a line of twelve", "a line of|twelve|"},
		{"a full row doesn't wrap yet", "0123456789\rx", "x123456789||"},
		{"scrolled", "one\r\ntwo\r\nthree\r\nfour", "two|three|four"},
		{"a letter of two bytes", "müde…", "müde…||"},
		{"modes", "\x1b[?2004hone\x1b[?2004l", "one||"},
	} {
		whole, divided := newScreen(3, 10), newScreen(3, 10)
		if _, err := whole.Write([]byte(c.written)); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		for _, b := range []byte(c.written) {
			if _, err := divided.Write([]byte{b}); err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
		}
		for _, s := range []*screen{whole, divided} {
			if got := s.texts(); !slices.Equal(got, strings.Split(c.want, "|")) {
				t.Errorf("%s: %q, want %q", c.what, got, c.want)
			}
		}
	}
}

// TestScreenIsHonest: a screen doesn't pass over what it doesn't know.
func TestScreenIsHonest(t *testing.T) {
	for _, unknown := range []string{"\x1b[31mred", "\x1b[2A", "\x1b]0;title\a", "\x07\x0b"} {
		if _, err := newScreen(3, 10).Write([]byte(unknown)); err == nil {
			t.Errorf("%q is no error", unknown)
		}
	}
}
