package audit

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestSpanTimes: how long a span waited and was held, and when it ends, while the log lacks some of the times.
func TestSpanTimes(t *testing.T) {
	asked := time.Date(2026, 3, 7, 9, 0, 0, 0, time.UTC)
	held, end := asked.Add(time.Minute), asked.Add(time.Hour)
	for name, c := range map[string]struct {
		span         Span
		waited, time time.Duration
		known        bool
		until        time.Time
	}{
		"refused":  {Span{Asked: asked, End: held}, time.Minute, 0, false, held},
		"held":     {Span{Asked: asked, Held: held, End: end}, time.Minute, 59 * time.Minute, true, end},
		"no end":   {Span{Asked: asked, Held: held, Seen: held.Add(time.Second), last: held.Add(time.Hour)}, time.Minute, time.Second, false, held.Add(time.Hour)},
		"no times": {Span{Asked: asked, End: asked}, 0, 0, false, asked},
	} {
		d, known := c.span.HeldFor()
		assert.That(t, c.span.Waited() == c.waited && d == c.time && known == c.known && c.span.Until().Equal(c.until), "%s: waited %v, held %v, %v, until %v", name, c.span.Waited(), d, known, c.span.Until())
	}
	assert.Equal(t, (&Span{Asked: asked}).Until(), asked)
}

// TestStopWithoutAGap: a stop that begins when another one ends is the same stop.
func TestStopWithoutAGap(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var s Span
	s.stop(&s.paused, true, at(1))
	s.stop(&s.paused, false, at(2))
	s.stop(&s.suspended, true, at(2))
	s.stop(&s.paused, true, at(3))
	s.stop(&s.suspended, false, at(4))
	s.stop(&s.paused, false, at(5))
	assert.Equal(t, s.Stops, []Stop{{at(1), at(5)}})
	s.stop(&s.paused, true, at(7))
	assert.That(t, s.StoppedFor() == 4*time.Second && s.StoppedSince().Equal(at(7)), "%v, %v", s.StoppedFor(), s.StoppedSince())
}

// TestFollow: a release that fails keeps the time of an earlier end, and a removal has the words of its kind.
func TestFollow(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var s Span
	s.follow(Record{Event: ReleaseFailed, Timestamp: at(2), Error: "down"})
	s.follow(Record{Event: ReleaseFailed, Timestamp: at(3), Error: "still down"})
	assert.That(t, s.End.Equal(at(2)) && s.Outcome == "not removed: still down", "%v, %s", s.End, s.Outcome)
	for event, want := range map[string]string{Broken: "broke the lock of", Stolen: "removed the stale lock of"} {
		assert.Equal(t, removal(Record{Event: event}).What, want)
	}
}

// TestReadFails: an error of the file is returned, with the records before it. The end of the file is none.
func TestReadFails(t *testing.T) {
	down := errors.New("down")
	const line = `{"event":"lock_acquired","timestamp":"2026-03-07T09:00:00Z"}` + "\n"
	records, skipped, err := Read(io.MultiReader(strings.NewReader(line), failing{down}))
	assert.That(t, len(records) == 1 && skipped == 0 && errors.Is(err, down), "%v, %d, %v", records, skipped, err)
	records, skipped, err = Read(strings.NewReader(line + "cut off"))
	assert.That(t, len(records) == 1 && skipped == 1 && err == nil, "%v, %d, %v", records, skipped, err)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
