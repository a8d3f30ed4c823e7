package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/replock"
)

// keyed is a system of one key. Locks that appear after it was looked at have the id of others,
// as in Redis locks of a constant value have.
type keyed struct {
	url    string
	locked bool
	appear bool // after a look
	err    error
	broken int
}

func (k *keyed) Status(context.Context) ([]replock.Info, error) { return nil, k.err }

func (k *keyed) Break(_ context.Context, o replock.BreakOptions) ([]replock.Broken, error) {
	if k.err != nil {
		return nil, k.err
	}
	info := replock.Info{Mode: replock.Exclusive, ID: "1", Keys: []string{k.url}, Holder: "h"}
	shown := o.Shown == nil || slices.ContainsFunc(o.Shown, func(b replock.Broken) bool { return b.ID == info.ID })
	locked := k.locked && shown && (o.ID == "" || o.ID == info.ID)
	k.locked = k.locked || k.appear
	if !locked {
		return nil, nil
	}
	if !o.DryRun {
		k.broken++
	}
	return []replock.Broken{{Info: info}}, nil
}

func breakAll(c breakCmd, systems ...*keyed) (code int, out string, err error) {
	var all []placed
	for _, k := range systems {
		all = append(all, placed{k, session.Place{URL: k.url}})
	}
	var stdout bytes.Buffer
	r := &reporter{stdout: &stdout, stderr: &stdout, terminal: func() bool { return false }}
	code, err = c.breakIn(r, newConsole(r), all, nil)
	return code, stdout.String(), err
}

// TestBreakShown: a lock that appears elsewhere after break-lock has looked isn't deleted, though
// its id is that of a lock that was shown.
func TestBreakShown(t *testing.T) {
	a, b := &keyed{url: "fake:a", locked: true}, &keyed{url: "fake:b", appear: true}
	_, out, err := breakAll(breakCmd{Yes: true}, a, b)
	if err != nil || a.broken != 1 || b.broken != 0 || strings.Contains(out, "fake:b") {
		t.Errorf("%v, %d and %d broken: %s", err, a.broken, b.broken, out)
	}
}

// TestBreakOneID: --id that chooses the locks of two systems deletes none, and names both. So does
// one that a system can't be asked for.
func TestBreakOneID(t *testing.T) {
	a, b := &keyed{url: "fake:a", locked: true}, &keyed{url: "fake:b", locked: true}
	_, _, err := breakAll(breakCmd{Yes: true, ID: "1"}, a, b)
	if err == nil || a.broken+b.broken > 0 || !strings.Contains(err.Error(), "fake:a") || !strings.Contains(err.Error(), "fake:b") {
		t.Fatalf("%v, %d and %d broken", err, a.broken, b.broken)
	}
	if _, code, _ := describe(err); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	b.err = session.ErrOwnerEnded
	if _, _, err := breakAll(breakCmd{Yes: true, ID: "1"}, a, b); err == nil || a.broken > 0 {
		t.Errorf("%v, %d broken", err, a.broken)
	}
	if _, _, err := breakAll(breakCmd{Yes: true, ID: "1"}, a); err != nil || a.broken != 1 {
		t.Errorf("%v, %d broken", err, a.broken)
	}
}
