//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// sample is the measurements of one quantity.
type sample[T cmp.Ordered] []T

type (
	times  = sample[time.Duration]
	sizes  = sample[int64]
	counts = sample[int]
)

// median returns the middle value, or the smaller of two in the middle, so that it was
// measured; p90 returns a value that nine in ten don't exceed. An empty sample has zero for
// both.
func (s sample[T]) median() T { return s.quantile(50) }
func (s sample[T]) p90() T    { return s.quantile(90) }

func (s sample[T]) quantile(percent int) (v T) {
	if len(s) == 0 {
		return v
	}
	return slices.Sorted(slices.Values(s))[(len(s)*percent+99)/100-1]
}

// String returns the one value that all have, or their range.
func (s sample[T]) String() string {
	least, most := slices.Min(s), slices.Max(s)
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%v-%v", least, most)
}
