package audit

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("AUDIT_TEST_LOG"); path != "" {
		appendMany(path)
		return
	}
	os.Exit(m.Run())
}

const many = 200

func appendMany(path string) {
	l, err := Open(path)
	if err != nil {
		panic(err)
	}
	for i := range many {
		body, _ := json.Marshal(strings.Repeat("x", i*100)) // longer than a page, some
		err := l.Append(Record{Event: Stolen, Timestamp: time.Now(), RequestID: fmt.Sprint(os.Getpid()), PID: i, PreviousLock: body})
		if err != nil {
			panic(err)
		}
	}
}

// Many processes append at once, and each record is whole.
func TestAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var processes sync.WaitGroup
	for range 8 {
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
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v: %v", info.Mode(), err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	records, skipped, err := Read(file)
	if err != nil || skipped > 0 || len(records) != 8*many {
		t.Fatalf("%d records, %d skipped: %v", len(records), skipped, err)
	}
	next := map[string]int{}
	for _, r := range records {
		if r.PID != next[r.RequestID] || len(r.PreviousLock) != r.PID*100+2 {
			t.Fatalf("after %d of it: %d, of %d bytes", next[r.RequestID], r.PID, len(r.PreviousLock))
		}
		next[r.RequestID]++
	}
}

func TestRead(t *testing.T) {
	good := `{"event":"lock_acquired","timestamp":"2026-03-07T09:00:00Z","new":1}`
	for text, want := range map[string][2]int{
		"":                               {0, 0},
		good:                             {1, 0},
		good + "\n" + good + "\n":        {2, 0},
		good[:20] + good + "\n" + good:   {1, 1},
		"\n" + good + "\n{}\n[]\nnull\n": {1, 4},
	} {
		records, skipped, err := Read(strings.NewReader(text))
		if err != nil || len(records) != want[0] || skipped != want[1] {
			t.Errorf("%q: %d records, %d skipped, %v", text, len(records), skipped, err)
		}
	}
}
