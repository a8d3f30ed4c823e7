package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("AUDIT_TEST_LOG"); path != "" {
		appendMany(path)
		return
	}
	os.Exit(m.Run())
}

// lines is the number of records that each of several processes appends.
const lines = 100

func appendMany(path string) {
	l, err := Open(path)
	if err != nil {
		panic(err)
	}
	for i := range lines {
		body, _ := json.Marshal(strings.Repeat("x", i*200)) // some are longer than a page of memory
		err := l.Append(Record{Event: Stolen, Timestamp: time.Now(), RequestID: fmt.Sprint(os.Getpid()), PID: i, PreviousLock: body})
		if err != nil {
			panic(err)
		}
	}
}

// TestAppend: each record is whole, although many processes append at the same time.
func TestAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	writers := rounds.Fewer(8, 4)
	var processes sync.WaitGroup
	for range writers {
		processes.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "AUDIT_TEST_LOG="+path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	processes.Wait()
	info, err := os.Stat(path)
	assert.That(t, err == nil && info.Mode().Perm()&0o077 == 0, "%v: %v", info.Mode(), err)
	file, err := os.Open(path)
	assert.OK(t, err)
	defer file.Close()
	records, skipped, err := Read(file)
	assert.Need(t, err == nil && skipped == 0 && len(records) == writers*lines, "%d records, %d skipped: %v", len(records), skipped, err)
	next := map[string]int{}
	for _, r := range records {
		assert.Need(t, r.PID == next[r.RequestID] && len(r.PreviousLock) == r.PID*200+2, "after %d records of a process: %d, of %d bytes", next[r.RequestID], r.PID, len(r.PreviousLock))
		next[r.RequestID]++
	}
}

// TestLinesStayReadable: Read accepts each line that Append writes, however long another client's texts
// are.
func TestLinesStayReadable(t *testing.T) {
	long := strings.Repeat("<é\u009b", 64<<10) // six times as long, escaped
	holder := Holder{RequestID: long, Actor: long, Intent: long, Holder: long, Mode: long, State: long}
	body, err := json.Marshal(strings.Repeat("<", 64<<10-2))
	assert.OK(t, err)
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(path)
	assert.OK(t, err)
	many := make([]Holder, 300)
	for i := range many {
		many[i] = holder
	}
	for _, r := range []Record{
		{Event: Blocked, HeldBy: many, Error: long, LockPath: long},
		{Event: Stolen, HeldBy: []Holder{holder}, PreviousLock: body, Error: long, LockPath: long},
	} {
		r.Timestamp = time.Now()
		assert.OK(t, l.Append(r))
	}
	text, err := os.ReadFile(path)
	assert.OK(t, err)
	records, skipped, err := Read(bytes.NewReader(text))
	assert.Need(t, err == nil && skipped == 0 && len(records) == 2, "%d records, %d skipped: %v", len(records), skipped, err)
	assert.Equal(t, len(records[0].HeldBy)+records[0].HeldByMore, len(many), "holders")
	intent := records[1].HeldBy[0].Intent
	cut := strings.HasSuffix(intent, "…") && utf8.ValidString(intent) && len(intent) <= maxText+len("…")
	assert.That(t, cut, "%d bytes: %.20q", len(intent), intent)
	assert.That(t, bytes.Equal(records[1].PreviousLock, body), "the removed lock isn't whole")
	assert.That(t, len(many[0].Intent) == len(long), "the caller's record was changed")
}

// TestRead: Read skips a line that is too long or no record, and reads those after it.
func TestRead(t *testing.T) {
	good := `{"event":"lock_acquired","timestamp":"2026-03-07T09:00:00Z","new":1}`
	endless := strings.Repeat("x", 3*maxLine)
	for text, want := range map[string][2]int{
		"":                                  {0, 0},
		good:                                {1, 0},
		good + "\n" + good + "\n":           {2, 0},
		good[:20] + good + "\n" + good:      {1, 1},
		"\n" + good + "\n{}\n[]\nnull\n":    {1, 4},
		good + "\n" + endless + "\n" + good: {2, 1},
		endless:                             {0, 1},
		endless + "\n" + endless + "\n":     {0, 2},
		good + "\n{}\n" + endless + "\n{\n": {1, 3},
	} {
		records, skipped, err := Read(strings.NewReader(text))
		assert.That(t, err == nil && len(records) == want[0] && skipped == want[1], "%.100q: %d records, %d skipped, %v; want %v", text, len(records), skipped, err, want)
	}
}
