package replock

import "github.com/repolock/repolock/internal/parallel"

// atOnce is the number of requests that are under way at once.
const atOnce = 16

// each calls f for every item and its index, up to atOnce at a time, and waits for all.
func each[T any](items []T, f func(int, T)) {
	parallel.Each(atOnce, len(items), func(i int) { f(i, items[i]) })
}
