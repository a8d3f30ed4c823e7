package freeport

import "testing"

func TestFree(t *testing.T) {
	seen := map[int]bool{}
	for range 500 {
		n, err := Free()
		if err != nil || n < 20000 || n >= 30000 || seen[n] {
			t.Fatalf("%d, %v; seen %v", n, err, seen[n])
		}
		seen[n] = true
	}
}
