package doctor

import (
	"slices"
	"sync"
	"time"
)

// latencies are how long the answers to each kind of request took.
type latencies struct {
	mu   sync.Mutex
	took map[string][]time.Duration
}

func (l *latencies) note(kind string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.took == nil {
		l.took = make(map[string][]time.Duration)
	}
	l.took[kind] = append(l.took[kind], took)
}

// requests is the order of a report.
var requests = []string{"list", "get", "put", "put if-none-match", "put if-match", "delete", "delete if-match"}

func (l *latencies) summary() []Latency {
	l.mu.Lock()
	defer l.mu.Unlock()
	summary := []Latency{}
	for _, kind := range requests {
		took := l.took[kind]
		if len(took) == 0 {
			continue
		}
		slices.Sort(took)
		summary = append(summary, Latency{kind, len(took), milliseconds(rank(took, 50)), milliseconds(rank(took, 99))})
	}
	return summary
}

// rank is the smallest of the sorted values that percent of them don't exceed.
func rank(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
