package sim

import (
	"encoding/binary"
	"math"
	"time"
)

// dice is a hash that serves as a source of randomness. A draw depends on the seed and on its
// purpose, and not on earlier draws.
type dice uint64

// of returns the dice for a thing.
func (d dice) of(parts ...uint64) dice {
	for _, p := range parts {
		d = dice(mix(uint64(d) ^ mix(p+0x9e3779b97f4a7c15)))
	}
	return d
}

// named returns the dice for a thing that has a name.
func (d dice) named(name string) dice {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return d.of(h)
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// unit is from [0, 1).
func (d dice) unit() float64 { return float64(mix(uint64(d))>>11) / (1 << 53) }

// chance is true with probability p.
func (d dice) chance(p float64) bool { return d.unit() < p }

// below is from [0, n).
func (d dice) below(n int) int { return int(d.unit() * float64(n)) }

// within is from [0, most). Even small values are likely, because the draw is even in the
// logarithm, over three orders of magnitude.
func (d dice) within(most time.Duration) time.Duration {
	return time.Duration(float64(most) * math.Pow(1000, d.unit()-1))
}

// between is from [low, high).
func (d dice) between(low, high time.Duration) time.Duration {
	return low + time.Duration(d.unit()*float64(high-low))
}

// pick is one of the choices.
func pick[T any](d dice, choices ...T) T { return choices[d.below(len(choices))] }

// fill makes bytes.
func (d dice) fill(b []byte) {
	for i := 0; i < len(b); i += 8 {
		var word [8]byte
		d = d.of(uint64(i))
		binary.LittleEndian.PutUint64(word[:], uint64(d))
		copy(b[i:], word[:])
	}
}
