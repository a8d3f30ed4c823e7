package judge

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/repolock/repolock/internal/test/assert"
)

// patience is longer than the judgement of any of these histories takes.
const patience = time.Minute

func TestJudge(t *testing.T) {
	a := section("a", Exclusive, 0, 10, 20, 30)
	for name, test := range map[string]struct {
		sections []Section
		names    []string // of the violations
		late     int
	}{
		"nothing":                       {nil, nil, 0},
		"one":                           {[]Section{a}, nil, 0},
		"two exclusive":                 {[]Section{a, section("b", Exclusive, 0, 15, 25, 30)}, []string{TwoIn}, 0},
		"one in the other":              {[]Section{a, section("b", Exclusive, 0, 12, 18, 30)}, []string{TwoIn}, 0},
		"the other in one":              {[]Section{a, section("b", Shared, 0, 5, 25, 30)}, []string{TwoIn}, 0},
		"for a moment":                  {[]Section{a, section("b", Shared, 0, 15, 15, 30)}, []string{TwoIn}, 0},
		"shared and exclusive":          {[]Section{section("b", Shared, 0, 1, 11, 12), a}, []string{TwoIn}, 0},
		"shared ones":                   {[]Section{section("b", Shared, 0, 1, 11, 12), section("c", Shared, 0, 1, 11, 12)}, nil, 0},
		"one after the other":           {[]Section{a, section("b", Exclusive, 0, 21, 25, 30)}, nil, 0},
		"touching":                      {[]Section{a, section("b", Exclusive, 0, 20, 25, 30)}, nil, 0},
		"long before its end":           {[]Section{section("a", Exclusive, 0, 10, 20, 1000), section("b", Exclusive, 15, 30, 40, 41), section("c", Shared, 15, 50, 60, 61)}, nil, 0},
		"long after its start":          {[]Section{section("a", Exclusive, 0, 900, 950, 1000), section("b", Exclusive, 15, 30, 40, 41)}, nil, 0},
		"never in":                      {[]Section{a, {ID: "b", Mode: Exclusive, Started: 5, Ended: 100}}, nil, 0},
		"killed in a write":             {[]Section{section("k", Shared, 0, 1, 2, 100).unanswered("put", "x", 9), a}, nil, 0},
		"a write begun beside another":  {[]Section{section("k", Shared, 0, 1, 2, 100).unanswered("put", "x", 11), a}, []string{TwoIn}, 0},
		"a write after it was let go":   {[]Section{section("k", Shared, 0, 1, 2, 100).act("put", "x", 12, 13), a}, []string{TwoIn}, 0},
		"a write answered while let go": {[]Section{section("k", Shared, 0, 1, 2, 100).act("put", "x", 9, 10), a}, nil, 0},

		"its own writes": {[]Section{a.act("list", "d/", 11, 12).act("put", "d/a", 13, 14)}, nil, 0},
		"written by another": {[]Section{
			section("b", Shared, 0, 1, 2, 12).act("put", "x", 3, 9), a.act("list", "d/", 8, 12).saw("x", true, 15),
		}, []string{ForeignWrite}, 0},
		"written by no section": {[]Section{a.act("list", "d/", 11, 12).saw("x", true, 15)}, []string{ForeignWrite}, 0},
		"written late":          {[]Section{section("k", Shared, 0, 1, 2, 100).unanswered("put", "x", 9), a.act("list", "d/", 11, 12).saw("x", true, 15)}, nil, 1},
		"listed late":           {[]Section{section("k", Shared, 0, 1, 2, 100).act("put", "x", 4, 5), a.act("list", "d/", 11, 12).saw("x", true, 15)}, []string{StaleListing}, 0},
		"deleted by another":    {[]Section{section("b", Exclusive, 0, 1, 2, 100).act("delete", "x", 3, 9), a.act("list", "d/", 8, 12).saw("x", false, 15)}, []string{ForeignDelete}, 0},
		"its own deleted by another": {[]Section{
			section("b", Exclusive, 0, 1, 2, 19).act("delete", "x", 15, 16), section("s", Shared, 0, 10, 11, 30).act("put", "x", 12, 13).act("list", "x", 20, 21).saw("x", false, 22),
		}, []string{TwoIn, ForeignDelete}, 0},
		"deleted late":          {[]Section{section("k", Exclusive, 0, 1, 2, 100).unanswered("delete", "x", 9), a.act("list", "d/", 11, 12).saw("x", false, 15)}, nil, 1},
		"listed once too long":  {[]Section{section("b", Exclusive, 0, 1, 2, 100).act("delete", "x", 3, 9), a.act("list", "d/", 11, 12).saw("x", false, 15)}, nil, 1},
		"deleted by no section": {[]Section{section("b", Shared, 0, 1, 2, 9).act("put", "x", 3, 4), a.act("list", "d/", 11, 12).saw("x", false, 15)}, []string{LostObject}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := Judge(test.sections, patience)
			var names []string
			for _, violation := range v.Violations {
				names = append(names, violation.Name)
			}
			want := NotFound
			if len(test.names) > 0 {
				want = Violated
			}
			assert.That(t, v.Result == want && slices.Equal(names, test.names) && v.Late == test.late, "%s %v, %d late, want %s %v, %d late", v.Result, v.Violations, v.Late, want, test.names, test.late)
		})
	}
}

// TestTwoJudges: porcupine and the search for overlaps agree on any history, and each finds a
// broken one.
func TestTwoJudges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	verdicts := map[bool]int{}
	for range 400 {
		sections := crowd(r, 4, 12, 1)
		if r.IntN(2) == 0 { // a section ends too late, or begins too early
			s := &sections[r.IntN(len(sections))]
			shift := upTo(r, 60*time.Millisecond)
			s.Last, s.Ended = s.Last+shift, max(s.Ended, s.Last+shift)
			s.Acts[0].Return = max(s.Acts[0].Return, s.Last-shift)
		}
		ok := porcupine.CheckOperations(model, operations(sections))
		found := overlaps(sections)
		assert.Need(t, ok == (len(found) == 0), "porcupine: %v, overlaps: %v", ok, found)
		verdicts[ok]++
	}
	assert.That(t, verdicts[true] >= 50 && verdicts[false] >= 50, "%d in order and %d not: the test needs both kinds", verdicts[true], verdicts[false])
}

// TestLongHistory: a history of hours is judged, drawn, and its one violation found.
func TestLongHistory(t *testing.T) {
	sections := crowd(rand.New(rand.NewPCG(3, 4)), 10, 1500, 4)
	v := Judge(sections, patience)
	assert.That(t, v.Result == NotFound, "%s: %s %v", v.Result, v.Why, v.Violations)
	for i, s := range sections {
		if i > len(sections)/2 && s.Mode == Exclusive {
			sections[i-1].Last = s.In + 1
			sections[i-1].Ended = s.Ended
			break
		}
	}
	v = Judge(sections, patience)
	assert.That(t, v.Result == Violated && len(v.Violations) == 1, "%s: %s %v", v.Result, v.Why, v.Violations)
	var picture strings.Builder
	assert.OK(t, v.Picture(&picture))
	drawn := strings.Contains(picture.String(), "<html") && strings.Contains(picture.String(), v.Violations[0].Sections[1]+" takes")
	assert.That(t, drawn, "a picture of %d bytes", picture.Len())
	t.Logf("%d operations, a picture of %d bytes", len(operations(sections)), picture.Len())
}

// TestUnknown: a search that was given up has no verdict.
func TestUnknown(t *testing.T) {
	v := Judge(crowd(rand.New(rand.NewPCG(3, 4)), 10, 5000, 4), 1)
	assert.That(t, v.Result == Unknown && v.Why != "", "%s %q", v.Result, v.Why)
}
