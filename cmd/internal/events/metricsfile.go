package events

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/internal/regular"
)

// metricsFile is a file of metrics. Several jobs can have one file.
type metricsFile struct {
	path string
	// patience bounds the wait for another writer.
	patience time.Duration
}

// patience is short, because a person can have stopped the other writer.
const patience = 250 * time.Millisecond

// put replaces the series of these labels in the file, and keeps those of other jobs. It replaces
// the file as a whole, because a collector can read it at any time.
func (m *metricsFile) put(labels string, values map[string]float64) error {
	file, err := regular.Target(m.path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(file)
	defer m.alone(dir)()
	old, err := readMetrics(file)
	if err != nil {
		return err
	}
	all := parseExposition(old)
	all.put(labels, values)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // unless it was renamed
	_, err = tmp.Write(all.expose())
	// The collector is another user.
	if err := fault.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// maxMetrics is more than maxJobs need.
const maxMetrics = 4 << 20

// readMetrics returns the file's text, or nothing if there is none, if another user's can't be
// read, or if it is too long to be ours.
func readMetrics(file string) ([]byte, error) {
	f, err := regular.Open(file)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxMetrics+1))
	if len(text) > maxMetrics {
		return nil, nil
	}
	return text, err
}

// alone keeps other writers out of the directory until the returned function is called, by a
// flock of it. Without that flock, the figures of another job can be a change behind.
func (m *metricsFile) alone(dir string) func() {
	d, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if ok, err := flock.Try(d); ok || err != nil {
			break
		}
		if time.Since(begin) >= m.patience {
			m.patience = 0 // the events of a stopped writer's whole stop must not wait in turn
			break
		}
	}
	return func() { flock.Close(d) }
}
