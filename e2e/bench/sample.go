//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// sample is what was measured again and again.
type sample[T cmp.Ordered] []T

type (
	times  = sample[time.Duration]
	sizes  = sample[int64]
	counts = sample[int]
)

// median is the middle one, or of two in the middle the smaller, so that it was
// measured; p90 is what nine in ten don't exceed. Of nothing they are zero.
func (s sample[T]) median() T { return s.quantile(50) }
func (s sample[T]) p90() T    { return s.quantile(90) }

func (s sample[T]) quantile(percent int) (v T) {
	if len(s) == 0 {
		return v
	}
	return slices.Sorted(slices.Values(s))[(len(s)*percent+99)/100-1]
}

// String is the one value that all have, or their range.
func (s sample[T]) String() string {
	least, most := slices.Min(s), slices.Max(s)
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%v-%v", least, most)
}
