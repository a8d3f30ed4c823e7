package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
)

// replay passes a report these events, a second after one another, as "action test output".
func replay(t *testing.T, r *report, start time.Time, events ...string) {
	t.Helper()
	for i, e := range events {
		f := strings.SplitN(e, " ", 3)
		raw, err := json.Marshal(map[string]string{"Action": f[0], "Package": "example.org/p", "Test": strings.Trim(f[1], "-"), "Output": f[2]})
		assert.OK(t, err)
		r.line(raw, start.Add(time.Duration(i)*time.Second))
	}
}

// TestReport: of a package that passed only the result is printed, of a test that failed
// everything.
func TestReport(t *testing.T) {
	for _, test := range []struct {
		name   string
		events []string
		want   string
	}{
		{"passed", []string{
			"start - ", "run A ", "output A === RUN A\n", "output A a log\n", "output A --- PASS: A\n", "pass A ",
			"output - PASS\n", "output - ok  \texample.org/p\t1s\n", "pass - ",
		}, "ok  \texample.org/p\t1s\n1 passed, 0 failed\n"},
		{"failed", []string{
			"run A ", "run A/b ", "output A/b why\n", "output A/b --- FAIL: A/b\n", "output A --- FAIL: A\n", "fail A/b ", "fail A ",
			"run C ", "output C a log\n", "pass C ", "output - FAIL\n", "output - FAIL\texample.org/p\t1s\n", "fail - ",
		}, "why\n--- FAIL: A/b\n--- FAIL: A\nFAIL\nFAIL\texample.org/p\t1s\nfailed: example.org/p A/b\nfailed: example.org/p A\n1 passed, 2 failed\n"},
		{"crashed", []string{
			"run A ", "output A panic: oh\n", "output - FAIL\texample.org/p\t1s\n", "fail - ",
		}, "panic: oh\nFAIL\texample.org/p\t1s\nfailed: example.org/p\n0 passed, 1 failed\n"},
		{"crashed between tests", []string{
			"run A ", "output A a log\n", "output A --- PASS: A (0.1s)\n", "output A panic: oh\n", "pass A ", "output - FAIL\texample.org/p\t1s\n", "fail - ",
		}, "panic: oh\nFAIL\texample.org/p\t1s\nfailed: example.org/p\n1 passed, 1 failed\n"},
		{"skipped", []string{"run A ", "output A why\n", "skip A ", "output - ok\n", "pass - "}, "ok\nskipped: example.org/p A\n0 passed, 0 failed\n"},
		{"left out", []string{"run A ", "output A     a_test.go:1: " + rounds.Left + "a wait\n", "skip A ", "output - ok\n", "pass - "}, "ok\n1 left to the long suite: make e2e\n0 passed, 0 failed\n"},
		{"ended itself", []string{"run A ", "output - half\n"}, "not ended: example.org/p\nhalf\nfailed: example.org/p\n0 passed, 1 failed\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out, time.Time{})
			replay(t, r, time.Time{}, test.events...)
			r.end(time.Time{}.Add(2*time.Second), 3*time.Second)
			assert.Equal(t, strings.Replace(out.String(), "2s, 3s of the processors\n", "", 1), test.want)
		})
	}
}

// TestWords: lines that aren't events, and the build's, are passed on.
func TestWords(t *testing.T) {
	var out strings.Builder
	r := newReport(&out, time.Time{})
	for _, line := range []string{"plain\n", `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: bad\n"}` + "\n", `{"not":"an event"}` + "\n"} {
		r.line([]byte(line), time.Time{})
	}
	assert.Equal(t, out.String(), "plain\np.go:1: bad\n"+`{"not":"an event"}`+"\n")
}

// TestTick: after 8 s of silence a line names the tests that have run longest. It leaves out
// those that only wait, for their subtests or for their turn.
func TestTick(t *testing.T) {
	var out strings.Builder
	start := time.Now()
	r := newReport(&out, start)
	said := func(at time.Duration) string {
		out.Reset()
		r.tick(start.Add(at))
		_, doing, _ := strings.Cut(out.String(), "; ")
		return doing
	}
	assert.Equal(t, said(silence-1), "", "too early")
	assert.Equal(t, said(silence), "building\n")
	replay(t, r, start.Add(10*time.Second), "start - ")
	assert.Equal(t, said(18*time.Second), "running example.org/p (8s)\n")
	replay(t, r, start.Add(20*time.Second), "run A ", "run A/a ", "run A/b ", "run A/c ", "run A/d ", "run B ", "pause A/a ", "pause B ")
	assert.Equal(t, said(22*time.Second), "", "too early")
	assert.Equal(t, said(30*time.Second), "running example.org/p A/b (8s), example.org/p A/c (7s), example.org/p A/d (6s)\n")
	replay(t, r, start.Add(31*time.Second), "pass A/b ", "pass A/c ", "pass A/d ", "cont A/a ", "run C ", "run D ", "run E ")
	assert.Equal(t, said(40*time.Second), "running example.org/p A/a (6s), example.org/p C (5s), example.org/p D (4s), 1 more\n")
}
