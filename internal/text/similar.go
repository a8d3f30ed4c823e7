package text

import (
	"slices"
	"strings"
)

// Distance is the number of bytes to insert, delete or replace that turns a into b (Levenshtein).
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0]++
		for j := range len(b) {
			d := before
			if a[i] != b[j] {
				d = min(before, row[j], row[j+1]) + 1
			}
			before, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}

// Resembles reports whether a name begins with a word, or the word can be a misspelling of it.
func Resembles(word, name string) bool {
	d := Distance(name, word)
	return word != "" && (strings.HasPrefix(name, word) || d <= 2 && 2*d <= len(word))
}

// Misspells reports whether a short word differs from ours by one letter, or has two neighbours of ours exchanged.
func Misspells(word, ours string) bool {
	d := Distance(word, ours)
	letters := func(s string) string { return string(slices.Sorted(slices.Values([]byte(s)))) }
	return len(word) > 2 && (d == 1 || d == 2 && letters(word) == letters(ours))
}
