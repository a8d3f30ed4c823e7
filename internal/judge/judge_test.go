package judge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

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
			v := Judge(test.sections)
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

// TestOverlaps: overlaps finds exactly the sections that a replay of the history finds, whether the history is in
// order or not.
func TestOverlaps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	verdicts := map[bool]int{}
	for n := range 20000 {
		sections := meeting(r)
		if n%50 == 0 {
			sections = crowd(r, 4, 12, 1)
			if r.IntN(2) == 0 { // a section ends too late
				s := &sections[r.IntN(len(sections))]
				s.Last += upTo(r, 60*time.Millisecond)
				s.Ended = max(s.Ended, s.Last)
			}
		}
		pairs := map[string]bool{}
		for _, v := range overlaps(sections) {
			pairs[pair(v.Sections[0], v.Sections[1])] = true
		}
		want := replay(sections)
		assert.Equal(t, pairs, want, "%+v", sections)
		verdicts[len(want) == 0]++
	}
	assert.That(t, verdicts[true] >= 2000 && verdicts[false] >= 2000, "%d in order and %d not: the test needs both kinds", verdicts[true], verdicts[false])
}

// TestConflicts: an attempt counts if another section, which excludes it, certainly held the lock meanwhile.
func TestConflicts(t *testing.T) {
	a, s := section("a", Exclusive, 0, 10, 20, 30), section("s", Shared, 0, 10, 20, 30)
	refused := func(mode Mode, started, ended time.Duration) Section {
		return Section{ID: "r", Mode: mode, Started: started, Ended: ended}
	}
	for name, test := range map[string]struct {
		sections []Section
		want     int
	}{
		"nothing":                        {nil, 0},
		"alone":                          {[]Section{a}, 0},
		"refused":                        {[]Section{a, refused(Shared, 15, 16)}, 1},
		"refused, and not seen by whom":  {[]Section{refused(Exclusive, 15, 16), refused(Exclusive, 15, 16)}, 0},
		"refused before":                 {[]Section{a, refused(Shared, 5, 10)}, 0},
		"refused after":                  {[]Section{a, refused(Shared, 20, 25)}, 0},
		"across":                         {[]Section{a, refused(Shared, 5, 25)}, 1},
		"waited":                         {[]Section{a, section("b", Exclusive, 15, 21, 22, 23)}, 1},
		"came after":                     {[]Section{a, section("b", Exclusive, 20, 21, 22, 23)}, 0},
		"shared ones":                    {[]Section{s, refused(Shared, 15, 16), section("b", Shared, 15, 21, 22, 23)}, 0},
		"an exclusive one beside shared": {[]Section{s, section("b", Shared, 0, 11, 12, 13), refused(Exclusive, 15, 16)}, 1},
		"a short one in a long one":      {[]Section{a, section("b", Exclusive, 0, 21, 50, 50), section("c", Exclusive, 0, 51, 52, 53), refused(Shared, 30, 31)}, 3},
		"the last begun has ended":       {[]Section{section("l", Shared, 0, 1, 50, 50), section("b", Shared, 0, 2, 3, 4), refused(Exclusive, 30, 31)}, 1},
	} {
		assert.Equal(t, Conflicts(test.sections), test.want, name)
	}
}

// meeting returns a few sections whose times are so few that many are equal.
func meeting(r *rand.Rand) (sections []Section) {
	for n := range 2 + r.IntN(5) {
		in := time.Duration(2 * r.IntN(12))
		last := in + time.Duration(2*r.IntN(3)*r.IntN(2))
		s := section(fmt.Sprint("c", n), []Mode{Shared, Exclusive}[r.IntN(2)], in, in, last, last)
		s.Entered = r.IntN(10) > 0
		sections = append(sections, s)
	}
	return sections
}

// replay looks at the history at each of its times, and between each two of them. It returns the pairs of
// sections that certainly held the lock at one of these times, although they exclude each other.
func replay(sections []Section) map[string]bool {
	var times []time.Duration
	for _, s := range sections {
		times = append(times, s.In, s.Last)
	}
	slices.Sort(times)
	found := map[string]bool{}
	for i, at := range times {
		// A section that enters or leaves at this time needn't hold the lock before or after it. One that does
		// both holds it for an instant.
		holds := func(s Section) bool { return s.In < at && at < s.Last }
		instant := func(s Section) bool { return s.In == at && at == s.Last }
		between := func(s Section) bool { return i+1 < len(times) && s.In <= at && times[i+1] <= s.Last && at < times[i+1] }
		for _, a := range sections {
			for _, b := range sections {
				together := holds(a) && (holds(b) || instant(b)) || between(a) && between(b)
				if a.ID != b.ID && a.Entered && b.Entered && together && (a.Mode == Exclusive || b.Mode == Exclusive) {
					found[pair(a.ID, b.ID)] = true
				}
			}
		}
	}
	return found
}

func pair(a, b string) string { return min(a, b) + " " + max(a, b) }

// TestLongHistory: a history of hours is judged, and its one violation found.
func TestLongHistory(t *testing.T) {
	sections := crowd(rand.New(rand.NewPCG(3, 4)), 10, 1500, 4)
	v := Judge(sections)
	assert.That(t, v.Result == NotFound, "%s: %v", v.Result, v.Violations)
	for i, s := range sections {
		if i > len(sections)/2 && s.Mode == Exclusive {
			sections[i-1].Last = s.In + 1
			sections[i-1].Ended = s.Ended
			break
		}
	}
	v = Judge(sections)
	assert.That(t, v.Result == Violated && len(v.Violations) == 1, "%s: %v", v.Result, v.Violations)
}
