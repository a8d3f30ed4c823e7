// Package real proves a store of the user's own: make real STORE=URL.
package real

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
	"github.com/repolock/repolock/store/storetest"
)

// TestStore proves the store of the URL in STORE, and prints a row for the table of docs/evidence/stores.md. STORE2
// is another URL of the same repository, as of a second gateway. NAME is the store's name in the row.
func TestStore(t *testing.T) {
	if os.Getenv("STORE") == "" {
		t.Skip("STORE is empty: make real STORE=URL")
	}
	r := begin(t, os.Getenv("STORE"), os.Getenv("STORE2"))
	found := &row{name: os.Getenv("NAME"), ways: len(r.urls)}
	for _, step := range []struct {
		name string
		run  func(*run, *testing.T, *row)
	}{{"contract", (*run).contract}, {"doctor", (*run).doctor}, {"torture", (*run).torture}, {"locks", (*run).locks}} {
		fmt.Printf("%s …\n", step.name)
		if !t.Run(step.name, func(t *testing.T) { step.run(r, t, found) }) {
			return
		}
	}
	t.Run("nothing is left", r.end)
	if !t.Failed() {
		r.json(t, &found.build, "version")
		fmt.Println(found)
	}
}

// run is the proof of one repository. All its objects are below prefix.
type run struct {
	urls    []string // of the repository: one for each way to it
	stores  []store.Store
	prefix  string
	bare    bool   // the repository had nothing below index/
	program string // repolock
	places  int    // that below has made
}

func begin(t *testing.T, urls ...string) *run {
	r := &run{prefix: fmt.Sprintf("index/locks/real-%s-%s", time.Now().UTC().Format("20060102t150405z"), strings.ToLower(rand.Text()[:8]))}
	for _, url := range urls {
		if url != "" {
			s, err := open.Store(t.Context(), url)
			assert.OK(t, err)
			r.urls, r.stores = append(r.urls, url), append(r.stores, s)
		}
	}
	r.program = filepath.Join(t.TempDir(), "repolock")
	out, err := exec.Command("go", "build", "-buildvcs=auto", "-o", r.program, "../../cmd/repolock").CombinedOutput()
	assert.Need(t, err == nil, "go build: %v\n%s", err, out)
	page, err := r.stores[0].List(t.Context(), "index/", "") // one page, because a user's index can be large
	assert.OK(t, err)
	r.bare = len(page.Objects)+len(page.Folders) == 0 && page.Next == ""
	fmt.Printf("everything is written below %s/, and removed at the end\n", r.prefix)
	t.Cleanup(func() { assert.OK(t, r.sweep(context.WithoutCancel(t.Context()))) })
	return r
}

// below makes an empty place below the prefix, and returns its URLs. A directory is made by a file in it.
func (r *run) below(t *testing.T) (urls []string) {
	t.Helper()
	r.places++
	at := fmt.Sprintf("%s/%d", r.prefix, r.places)
	assert.OK(t, assert.Err(r.stores[0].Put(t.Context(), at+"/made", nil, store.PutOptions{})))
	for _, url := range r.urls {
		urls = append(urls, join(t, url, at))
	}
	assert.OK(t, opened(t, urls[0]).Delete(t.Context(), "made"))
	return urls
}

// join returns the URL of a place below a URL.
func join(t *testing.T, url, at string) string {
	t.Helper()
	l, err := open.Parse(url)
	assert.OK(t, err)
	if l.Scheme == "file" {
		return filepath.Join(l.Path, filepath.FromSlash(at))
	}
	url, query, has := strings.Cut(url, "?")
	url = strings.TrimSuffix(url, "/") + "/" + at
	if has {
		url += "?" + query
	}
	return url
}

// opened opens a store for a test. A store that has a connection closes it with the test.
func opened(t *testing.T, url string) store.Store {
	t.Helper()
	s, err := open.Store(t.Context(), url)
	assert.OK(t, err)
	if c, is := s.(interface{ Close() error }); is {
		t.Cleanup(func() { assert.OK(t, c.Close()) })
	}
	return s
}

// contract runs the contract of a store, each line in a place of its own. It uses the first way alone, because a
// cursor of one way needn't be known to another; doctor and locks use both.
func (r *run) contract(t *testing.T, row *row) {
	urls := map[store.Store]string{}
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T) store.Store {
			row.lines++
			url := r.below(t)[0]
			s := opened(t, url)
			urls[s] = url
			return s
		},
		Reopen:    func(t *testing.T, s store.Store) store.Store { return opened(t, urls[s]) },
		Precision: time.Second, // the coarsest of all backends
	})
}

func (r *run) doctor(t *testing.T, row *row) {
	urls := r.below(t)
	args := []string{"doctor", urls[0]}
	if len(urls) > 1 {
		args = append(args, "--also", urls[1])
	}
	r.json(t, &row.diagnosis, args...)
}

func (r *run) torture(t *testing.T, row *row) {
	// On a slow store or a busy machine too little might happen for a verdict.
	for row.tortured = rounds.Fewer(time.Minute, 5*time.Second); ; row.tortured *= 2 {
		out, err := r.try(t, &row.torture, "torture", r.below(t)[0], "--duration", row.tortured.String())
		exit, exited := errors.AsType[*exec.ExitError](err)
		if !exited || exit.ExitCode() != fault.ExitUnjudged || row.tortured > assert.Hang {
			assert.Need(t, err == nil, "repolock torture: %v\n%s", err, out)
			return
		}
	}
}

// json runs repolock, which must succeed, and reads its result.
func (r *run) json(t *testing.T, result any, args ...string) {
	t.Helper()
	out, err := r.try(t, result, args...)
	assert.Need(t, err == nil, "repolock %s: %v\n%s", args[0], err, out)
}

// try runs repolock, and reads its result if it succeeds.
func (r *run) try(t *testing.T, result any, args ...string) (out string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), r.program, append([]string{"--json"}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Run(); err == nil {
		assert.OK(t, json.Unmarshal(stdout.Bytes(), result))
	}
	return stdout.String() + stderr.String(), err
}

// locks acquires and releases locks by all ways in turn. While one way holds the lock, the other way is refused.
func (r *run) locks(t *testing.T, row *row) {
	urls := r.below(t)
	var lockers []*replock.Locker
	for _, url := range []string{urls[0], urls[len(urls)-1]} {
		l, err := replock.New(opened(t, url), replock.Options{})
		assert.OK(t, err)
		lockers = append(lockers, l)
	}
	row.rounds = rounds.Fewer(20, 2)
	for i := range row.rounds {
		mine, theirs := lockers[i%2], lockers[1-i%2]
		acquired := row.acquire.took(func() *replock.Lock { return r.lock(t, mine.TryExclusive) })
		refused := []func(context.Context, string, ...replock.AcquireOption) (*replock.Lock, error){theirs.TryExclusive, theirs.TryShared}[i/2%2]
		_, err := refused(t.Context(), "real")
		assert.Need(t, errors.Is(err, replock.ErrHeld), "round %d: an exclusive lock is held, and another acquire returns %v", i, err)
		row.release.took(func() *replock.Lock { assert.OK(t, acquired.Release(t.Context())); return nil })
		one, other := r.lock(t, theirs.TryShared), r.lock(t, mine.TryShared)
		assert.OK(t, one.Release(t.Context()))
		assert.OK(t, other.Release(t.Context()))
	}
}

func (r *run) lock(t *testing.T, acquire func(context.Context, string, ...replock.AcquireOption) (*replock.Lock, error)) *replock.Lock {
	t.Helper()
	k, err := acquire(t.Context(), "real")
	assert.OK(t, err)
	return k
}

// end removes all that the run has written, and looks for the rest by each way.
func (r *run) end(t *testing.T) {
	assert.OK(t, r.sweep(t.Context()))
	under := r.prefix
	if r.bare {
		under = "index"
	}
	for way := range r.stores {
		names, err := r.names(t.Context(), way, under)
		assert.OK(t, err)
		assert.That(t, len(names) == 0, "by %s these are left: %q", r.urls[way], names)
	}
}

// sweep deletes all objects and empty directories below the prefix, and an index directory that the run has made.
func (r *run) sweep(ctx context.Context) error {
	for range 10 { // an empty directory shows only when what was in it is gone
		names, err := r.names(ctx, 0, r.prefix+"/")
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.stores[0].Delete(ctx, name); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			break
		}
	}
	if names, err := r.names(ctx, 0, "index"); r.bare && err == nil && slices.Equal(names, []string{"index/"}) {
		return r.stores[0].Delete(ctx, "index/")
	}
	return nil
}

// names lists the objects below a prefix, and the empty directories, whose names end with a slash.
func (r *run) names(ctx context.Context, way int, prefix string) (names []string, err error) {
	for cursor := ""; ; {
		page, err := r.stores[way].List(ctx, prefix, cursor)
		if err != nil {
			return nil, err
		}
		for _, o := range page.Objects {
			names = append(names, o.Key)
		}
		names = append(names, page.Folders...)
		if cursor = page.Next; cursor == "" {
			return names, nil
		}
	}
}
