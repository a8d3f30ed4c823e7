package doctor

import (
	"slices"
	"time"
)

// requests are the kinds of requests, in the order of a report.
var requests = []string{"list", "get", "put", "put if-none-match", "put if-match", "delete", "delete if-match"}

func (x *exam) latency() []Latency {
	summary := []Latency{}
	for _, kind := range requests {
		took := x.took[kind]
		if len(took) == 0 {
			continue
		}
		slices.Sort(took)
		summary = append(summary, Latency{kind, len(took), milliseconds(rank(took, 50)), milliseconds(rank(took, 99))})
	}
	return summary
}

// rank returns the smallest of the sorted values that percent of them don't exceed.
func rank(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
