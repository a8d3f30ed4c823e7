package main

import (
	"unicode"

	"golang.org/x/text/width"
)

// cut cuts a text to so many columns of a terminal.
func cut(text string, columns int) string {
	if columnsIn(text) <= columns {
		return text
	}
	n := 0
	for i, r := range text {
		if n += columnsOfRune(r); n > columns-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// columnsIn returns the number of columns that a text takes on a terminal.
func columnsIn(text string) (n int) {
	for _, r := range text {
		n += columnsOfRune(r)
	}
	return n
}

// columnsOfRune is 2 for a wide character, as of Chinese, and 0 for a mark on another one.
func columnsOfRune(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}
