//go:build unix

package towerfleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// malformed returns lock files of the name n that no reader can trust.
func malformed() map[string]string {
	good := foreign("n", "req_1", time.Now(), 900)
	files := map[string]string{
		"empty": "", "spaces": "  \n", "text": "held", "null": "null", "array": "[" + good + "]", "string": `"x"`,
		"cut": good[:len(good)/2], "cut at the end": strings.TrimSuffix(good, "}\n"), "twice": good + good, "trailing": good + "x",
		"zeros": strings.Repeat("\x00", 100), "binary": "\xff\xfe{}", "large": good + strings.Repeat(" ", maxSize),
		"other name": foreign("m", "req_1", time.Now(), 900), "no request": foreign("n", "", time.Now(), 900),
		"path as request": foreign("n", "../x", time.Now(), 900), "long request": foreign("n", strings.Repeat("x", 129), time.Now(), 900),
		"line in request": foreign("n", "a\nb", time.Now(), 900), "no ttl": foreign("n", "req_1", time.Now(), 0),
		"negative ttl": foreign("n", "req_1", time.Now(), -1), "endless ttl": foreign("n", "req_1", time.Now(), 1<<60),
		"field twice":      strings.Replace(good, "{", `{"ttl_seconds": 1, `, 1),
		"version":          strings.Replace(good, `"v1"`, `"v2"`, 1),
		"version a number": strings.Replace(good, `"v1"`, `1`, 1),
		"upper case":       strings.Replace(good, `"ttl_seconds"`, `"TTL_SECONDS"`, 1),
		"ttl a string":     strings.Replace(good, `"ttl_seconds": 900`, `"ttl_seconds": "900"`, 1),
		"ttl a fraction":   strings.Replace(good, `"ttl_seconds": 900`, `"ttl_seconds": 900.5`, 1),
		"pid a string":     strings.Replace(good, `12345,`, `"12345",`, 1),
		"metadata a list":  strings.Replace(good, `"metadata": {`, `"metadata": [], "y": {`, 1),
	}
	at := `"` + formatTime(time.Now()) + `"`
	for i, bad := range []string{`"now"`, `""`, `1`, `null`, `"2025-12-18"`, `"2025-12-18 10:30:10"`, `"2025-12-18T10:30:10"`, `"2025-12-18T10:30:10+02:00"`, `"2025-13-18T10:30:10Z"`} {
		files[fmt.Sprintf("heartbeat %d", i)] = strings.Replace(good, `"last_heartbeat_at" : `+at, `"last_heartbeat_at" : `+bad, 1)
		files[fmt.Sprintf("creation %d", i)] = strings.Replace(good, `"created_at": `+at, `"created_at": `+bad, 1)
	}
	for _, f := range required {
		files["no "+f] = strings.Replace(good, `"`+f+`"`, `"x_`+f+`"`, 1)
	}
	return files
}

// TestMalformedIsHeld: a file that can't be trusted is a held lock, which is refused with one
// line, never stolen or broken as stale, and left as it is.
func TestMalformedIsHeld(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Force: true})
		files := malformed()
		if len(files) < 40 {
			t.Fatal(len(files))
		}
		for why, text := range files {
			w.write("n.lock", text)
			time.Sleep(time.Hour) // old enough to be stale
			held := w.refused(b, "n")
			if held.Trouble == "" || held.Stale {
				t.Errorf("%s: %+v", why, held)
			}
			if out, err := json.Marshal(held); err != nil || shape(t, string(out)) != shape(t, example(t, `"error": "lock_blocked"`, 1)) {
				t.Errorf("%s: %s %v", why, out, err)
			}
			info, err := b.Inspect(w.Context(), "n")
			if err != nil || info == nil || info.Trouble == "" || info.Stale {
				t.Fatalf("%s: %+v %v", why, info, err)
			}
			if ok, err := b.Break(w.Context(), info, true); ok || err != nil {
				t.Errorf("%s: broken as stale: %v %v", why, ok, err)
			}
			if got := w.read("n.lock"); got != text {
				t.Errorf("%s: was written: %q", why, got)
			}
		}
		if files := w.files(); len(files) != 1 || len(w.events) > 0 {
			t.Errorf("%q %v", files, w.events)
		}
	})
}

// TestIrregularIsHeld: what is no regular file is held, and no symbolic link is followed.
func TestIrregularIsHeld(t *testing.T) {
	in(t, func(w *world) {
		b := w.backend(Options{Force: true})
		w.write("target", foreign("link", "req_1", time.Now().Add(-time.Hour), 1))
		if err := errors.Join(os.Mkdir(w.path("dir.lock"), 0o700), os.Symlink("target", w.path("link.lock")),
			os.Symlink("none", w.path("dangling.lock")), syscall.Mkfifo(w.path("fifo.lock"), 0o600)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"dir", "link", "dangling", "fifo"} {
			if held := w.refused(b, name); held.Trouble == "" {
				t.Errorf("%s: %v", name, held)
			}
		}
		if files := w.files(); len(files) != 5 {
			t.Errorf("%q", files)
		}
	})
}
