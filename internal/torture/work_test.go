package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/plainstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// meddled is a store in which another client acts before a put is answered.
type meddled struct {
	store.Store
	meddle func(s store.Store, key string) error
}

func (m meddled) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	o, err := m.Store.Put(ctx, key, body, opts)
	return o, errors.Join(err, m.meddle(m.Store, key))
}

// section makes a section of the log of a child.
func section(t *testing.T, log []byte, id string, mode judge.Mode) judge.Section {
	t.Helper()
	events := []judge.Event{{Kind: judge.Start, ID: id, Mode: mode}}
	for line := range bytes.Lines(log) {
		e, err := judge.Parse(line, func(s string) bool { return s == id })
		assert.OK(t, err)
		events = append(events, e)
	}
	s, err := judge.Read(append(events, judge.Event{At: events[len(events)-1].At, Kind: judge.End, ID: id}))
	assert.OK(t, err)
	return s
}

func doWork(t *testing.T, mode judge.Mode, s store.Store, log io.Writer) error {
	t.Helper()
	objects := func(context.Context) (Objects, error) { return plainstore.Objects{Store: s}, nil }
	return Work{ID: "me", Mode: mode, Data: "data/"}.Do(t.Context(), objects, log)
}

// TestWork: a child logs the forbidden requests of others, and not its own.
func TestWork(t *testing.T) {
	write := func(s store.Store, key string) error {
		_, err := s.Put(t.Context(), key, nil, store.PutOptions{})
		return err
	}
	for name, test := range map[string]struct {
		mode   judge.Mode
		meddle func(s store.Store, key string) error
		want   []judge.Change
	}{
		"a prune alone":         {judge.Exclusive, func(store.Store, string) error { return nil }, nil},
		"beside a backup":       {judge.Exclusive, func(s store.Store, _ string) error { return write(s, "data/b/1") }, []judge.Change{{Key: "data/b/1", Appeared: true}}},
		"beside a prune":        {judge.Exclusive, func(s store.Store, _ string) error { return s.Delete(t.Context(), "data/old/20") }, []judge.Change{{Key: "data/old/20"}}},
		"a backup alone":        {judge.Shared, func(store.Store, string) error { return nil }, nil},
		"a backup and another":  {judge.Shared, func(s store.Store, _ string) error { return write(s, "data/b/1") }, nil},
		"a backup and a prune":  {judge.Shared, func(s store.Store, key string) error { return s.Delete(t.Context(), key) }, []judge.Change{{Key: "data/me/1"}}},
		"a prune pruned itself": {judge.Exclusive, func(s store.Store, key string) error { return s.Delete(t.Context(), key) }, []judge.Change{{Key: "data/me/1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := memory.New(memory.Options{})
			for n := range maxDeletes + 1 {
				assert.OK(t, write(m, fmt.Sprintf("data/old/%02d", n)))
			}
			var log bytes.Buffer
			err := doWork(t, test.mode, meddled{m, test.meddle}, &log)
			s := section(t, log.Bytes(), "me", test.mode)
			for i := range s.Changes {
				s.Changes[i].At = 0
			}
			assert.That(t, err == nil && slices.Equal(s.Changes, test.want), "%v: %+v, want %+v", err, s.Changes, test.want)
			deletes := 0
			for _, a := range s.Acts {
				if a.Op == "delete" {
					deletes++
				}
			}
			assert.Equal(t, deletes, map[judge.Mode]int{judge.Shared: 0, judge.Exclusive: maxDeletes}[test.mode], "deletes")
		})
	}
}

// TestWorkUnanswered: a request that fails has no answer, and is the last one.
func TestWorkUnanswered(t *testing.T) {
	m := memory.New(memory.Options{})
	broken := errors.New("connection reset")
	var log bytes.Buffer
	err := doWork(t, judge.Shared, meddled{m, func(store.Store, string) error { return broken }}, &log)
	s := section(t, log.Bytes(), "me", judge.Shared)
	assert.That(t, errors.Is(err, broken) && len(s.Acts) == 1 && !s.Acts[0].Answered && s.Acts[0].Key == "data/me/1", "%v: %+v", err, s.Acts)
}

// TestWorkUnlogged: a child sends no request that it can't log.
func TestWorkUnlogged(t *testing.T) {
	for n := range 5 {
		m := memory.New(memory.Options{})
		log := &lines{left: n}
		assert.Is(t, doWork(t, judge.Exclusive, m, log), ErrUnjudged, "after %d lines", n)
		keys, err := store.Keys(t.Context(), m, "")
		assert.That(t, err == nil && (len(keys) > 0) == bytes.Contains(log.got.Bytes(), []byte(`"op":"put"`)), "after %d lines: %v, %v", n, keys, err)
	}
}

// lines accepts n lines.
type lines struct {
	left int
	got  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	if l.left--; l.left < 0 {
		return 0, errors.New("no space left")
	}
	return l.got.Write(p)
}

// TestOutput: the beginning of a process's output is kept.
func TestOutput(t *testing.T) {
	var o output
	n, err := io.Copy(&o, strings.NewReader("a"+strings.Repeat("b", 2*maxOutput)))
	assert.That(t, err == nil && n == 2*maxOutput+1 && o.text.Len() == maxOutput && strings.HasPrefix(o.text.String(), "ab"), "%d of %d, %v", o.text.Len(), n, err)
}
