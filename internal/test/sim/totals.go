package sim

import (
	"fmt"
	"strings"
	"time"
)

// Totals are the sums over many histories.
type Totals struct {
	Histories int
	Result
}

func (t *Totals) add(r Result) {
	t.Histories++
	t.Virtual += r.Virtual
	t.Requests += r.Requests
	t.Acquired += r.Acquired
	t.Held += r.Held
	t.Failed += r.Failed
	t.Lost += r.Lost
	t.Resumed += r.Resumed
	t.Queued += r.Queued
	for k, n := range r.Faults {
		t.Faults[k] += n
	}
}

// String returns two lines.
func (t *Totals) String() string {
	var faults []string
	for _, k := range Kinds() {
		faults = append(faults, fmt.Sprintf("%v %d", k, t.Faults[k]))
	}
	return fmt.Sprintf("%d histories, %.0f simulated hours, %d requests: locks granted %d, held by others %d, failed %d, lost %d, resumed %d, queued for %d\n%s",
		t.Histories, t.Virtual.Round(time.Hour).Hours(), t.Requests, t.Acquired, t.Held, t.Failed, t.Lost, t.Resumed, t.Queued, strings.Join(faults, ", "))
}
