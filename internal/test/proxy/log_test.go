package proxy

import (
	"testing"
	"time"
)

func TestTrips(t *testing.T) {
	for _, c := range []struct {
		spans [][2]int
		want  int
	}{
		{nil, 0},
		{[][2]int{{0, 10}}, 1},
		{[][2]int{{0, 10}, {1, 11}}, 1},
		{[][2]int{{0, 10}, {1, 11}, {12, 20}}, 2},
		{[][2]int{{0, 100}, {1, 10}, {11, 20}, {21, 30}}, 3},
		{[][2]int{{11, 20}, {0, 10}}, 2}, // in whatever order they ended
	} {
		var l Log
		for _, s := range c.spans {
			l = append(l, Entry{Start: time.Unix(int64(s[0]), 0), End: time.Unix(int64(s[1]), 0)})
		}
		if got := l.Trips(); got != c.want {
			t.Errorf("%v: %d, want %d", c.spans, got, c.want)
		}
	}
}
