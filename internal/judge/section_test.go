package judge

import (
	"slices"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// whole is a log with one entry of each kind.
func whole() []Event {
	return []Event{
		{At: 1, Kind: Start, ID: "a", Client: 3, Mode: Exclusive},
		{At: 2, Kind: In, ID: "a"},
		{At: 3, Kind: Call, ID: "a", Op: "list", Key: "d/"},
		{At: 4, Kind: Return, ID: "a"},
		{At: 1, Kind: Fault, ID: "a", Text: "stop"}, // noted by another process, which was late
		{At: 5, Kind: Call, ID: "a", Op: "delete", Key: "d/x"},
		{At: 6, Kind: Return, ID: "a", Error: "no answer"},
		{At: 7, Kind: Vanished, ID: "a", Key: "d/y"},
		{At: 7, Kind: Appeared, ID: "a", Key: "d/z"},
		{At: 8, Kind: Out, ID: "a"},
		{At: 9, Kind: End, ID: "a"},
	}
}

func TestRead(t *testing.T) {
	got, err := Read(whole())
	want := Section{
		ID: "a", Mode: Exclusive, Started: 1, Entered: true, In: 2, Last: 8, Ended: 9,
		Acts: []Act{
			{Op: "list", Key: "d/", Call: 3, Return: 4, Answered: true},
			{Op: "delete", Key: "d/x", Call: 5, Return: 6},
		},
		Changes: []Change{{"d/y", false, 7}, {"d/z", true, 7}},
		Faults:  []Event{{At: 1, Kind: Fault, ID: "a", Text: "stop"}},
	}
	assert.OK(t, err)
	assert.Equal(t, got, want)
}

// TestReadKilled: a killed process can leave any beginning of an entry.
func TestReadKilled(t *testing.T) {
	log := whole()
	for n := 1; n < len(log); n++ {
		s, err := Read(append(slices.Clone(log[:n]), log[len(log)-1]))
		assert.That(t, err == nil && s.Entered == (n > 1) && s.Ended == 9, "after %d: %+v, %v", n, s, err)
		last := len(s.Acts) - 1
		assert.That(t, last < 0 || s.Acts[last].Answered == (n > 3 && n < 6), "after %d: %+v", n, s.Acts)
		assert.That(t, assert.Err(Read(log[:n])) != nil, "without an end, after %d: no error", n)
	}
}

// TestReadNonsense: a line that can't be parsed is an error.
func TestReadNonsense(t *testing.T) {
	for name, spoil := range map[string]func([]Event) []Event{
		"no id": func(l []Event) []Event {
			for i := range l {
				l[i].ID = ""
			}
			return l
		},
		"no mode":             func(l []Event) []Event { l[0].Mode = ""; return l },
		"unknown kind":        func(l []Event) []Event { l[1].Kind = "inn"; return l },
		"unknown op":          func(l []Event) []Event { l[2].Op = "get"; return l },
		"of another":          func(l []Event) []Event { l[6].ID = "b"; return l },
		"time goes back":      func(l []Event) []Event { l[6].At = 4; return l },
		"two starts":          func(l []Event) []Event { return slices.Insert(l, 1, l[0]) },
		"in twice":            func(l []Event) []Event { return slices.Insert(l, 2, l[1]) },
		"never in":            func(l []Event) []Event { return slices.Delete(l, 1, 2) },
		"two calls":           func(l []Event) []Event { return slices.Delete(l, 3, 4) },
		"an unasked one":      func(l []Event) []Event { return slices.Delete(l, 2, 3) },
		"more after out":      func(l []Event) []Event { l[7], l[9] = l[9], l[7]; l[7].At, l[9].At = 7, 8; return l },
		"more after ended":    func(l []Event) []Event { return append(l, Event{At: 9, Kind: Call, ID: "a", Op: "put"}) },
		"fault of no section": func(l []Event) []Event { return l[4:5] },
	} {
		s, err := Read(spoil(whole()))
		assert.That(t, err != nil, "%s: %+v", name, s)
	}
}
