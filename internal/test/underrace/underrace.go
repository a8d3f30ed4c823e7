// Package underrace tells a test whether it runs under the race detector, which makes it some
// ten times slower.
//
// Tests repeat things with other numbers, to compare results: clocks that are wrong in
// different ways, a wait of three hours in simulated time, a thousand starts. The goroutines
// and what they share are the same each time, so the race detector needs only some
// of the repetitions. A test without the race detector makes all of them.
package underrace

// Fewer returns few under the race detector, or else all.
func Fewer[T any](all, few T) T {
	if On {
		return few
	}
	return all
}
