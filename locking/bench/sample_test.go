package bench

import (
	"slices"
	"testing"
	"time"
)

// sample runs f b.N times and reports the median of its durations.
func sample(b *testing.B, f func() error) {
	b.Helper()
	for range 200 { // connections, scripts, caches
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		begin := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
}
