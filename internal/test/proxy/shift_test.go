package proxy

import (
	"testing"
	"time"
)

func TestShift(t *testing.T) {
	for name, c := range map[string]struct{ method, path, answer, want string }{
		"list":   {"GET", "/bucket/?list-type=2", "<a><LastModified>2026-11-21T23:45:00.123Z</LastModified></a>", "<a><LastModified>2026-11-22T00:45:00.123Z</LastModified></a>"},
		"b2":     {"POST", "/b2api/v2/b2_list_file_names", `{"uploadTimestamp": 1000, "size": 7}`, `{"uploadTimestamp":3601000, "size": 7}`},
		"object": {"GET", "/bucket/key", "<LastModified>2026-11-21T23:45:00.123Z</LastModified>", "<LastModified>2026-11-21T23:45:00.123Z</LastModified>"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.answer)
			f.Behave(Behaviour{Shift: time.Hour})
			res, answer, err := f.do(c.method, c.path, "")
			if err != nil || answer != c.want {
				t.Errorf("%v %s", err, answer)
			}
			if date, modified := res.Header.Get("Date"), res.Header.Get("Last-Modified"); date != "Sat, 21 Nov 2026 11:00:00 GMT" || modified != "Sat, 21 Nov 2026 10:30:00 GMT" {
				t.Errorf("Date %s, Last-Modified %s", date, modified)
			}
		})
	}
}
