package sim

import (
	"testing"
	"time"
)

// TestWhatHadEndedAtTheLastLookMayBeBroken: a foreign lock that comes back between the last look of a
// break-lock and its delete was free by its own protocol. One that was live at that look must stand.
func TestWhatHadEndedAtTheLastLookMayBeBroken(t *testing.T) {
	const key = "index/lock.shared/1"
	look := time.Now()
	ago := func(d time.Duration) time.Time { return look.Add(-d) }
	other, holder := &client{name: "janitor"}, &client{name: "c1"}
	for name, c := range map[string]struct {
		present presence
		unseen  bool
		want    bool
	}{
		"ended, and not put again":  {present: presence{written: ago(70 * time.Second)}},
		"ended, and put again":      {present: presence{written: ago(-time.Second), before: ago(70 * time.Second)}},
		"live":                      {present: presence{written: ago(50 * time.Second)}, want: true},
		"live, and put again":       {present: presence{written: ago(-time.Second), before: ago(30 * time.Second)}, want: true},
		"put again before the look": {present: presence{written: ago(time.Second), before: ago(70 * time.Second)}, want: true},
		"not looked at again":       {present: presence{written: ago(70 * time.Second)}, unseen: true, want: true},
	} {
		c.present.client = holder
		w := &world{janitor: other, monitor: monitor{
			seen:    map[string]sighting{other.name + " " + key: {handed: look, listed: look}},
			present: map[string]presence{key: c.present},
		}}
		if c.unseen {
			w.seen = map[string]sighting{other.name + " " + key: {handed: look}}
		}
		if got := w.stoodWhenListed(holder, key); got != c.want {
			t.Errorf("%s: stoodWhenListed is %v", name, got)
		}
	}
}
