//go:build linux

package dir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// disk models what is left of a repository after a crash of the machine: the bodies of the files that were flushed, and
// the names in the directories that were flushed.
type disk struct {
	bodies map[uint64]string            // of files, by inode
	names  map[uint64]map[string]uint64 // of directories, by inode
}

func (k *disk) sync(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		body, err := os.ReadFile(fmt.Sprint("/proc/self/fd/", f.Fd()))
		k.bodies[inode(info)] = string(body)
		return err
	}
	k.names[inode(info)] = map[string]uint64{}
	entries, err := os.ReadDir(fmt.Sprint("/proc/self/fd/", f.Fd()))
	for _, e := range entries {
		if below, err := e.Info(); err == nil {
			k.names[inode(info)][e.Name()] = inode(below)
		}
	}
	return err
}

// read returns the body of a key after a crash.
func (k *disk) read(t *testing.T, root, key string) (body string, there bool) {
	t.Helper()
	info, err := os.Stat(root)
	assert.OK(t, err)
	at := inode(info)
	for _, name := range filepathElements(key) {
		if at, there = k.names[at][name]; !there {
			return "", false
		}
	}
	body, there = k.bodies[at]
	return body, there
}

func filepathElements(key string) (all []string) {
	for key != "." {
		all = append([]string{filepath.Base(key)}, all...)
		key = filepath.Dir(key)
	}
	return all
}

// TestAnsweredPutsOutlastACrash: after a crash of the machine a put that was answered is there, with its body and the
// directories that it has made, if the put is durable or the file system isn't local. Another put flushes nothing.
func TestAnsweredPutsOutlastACrash(t *testing.T) {
	for _, c := range []struct {
		local, durable bool
	}{{true, true}, {false, false}, {true, false}} {
		for name, opts := range map[string]store.PutOptions{"new": {}, "if absent": {IfAbsent: true}, "over": {}, "if match": {}} {
			s := opened(t)
			s.local = c.local
			const key = "index/locks/n/lock.shared/a"
			if name == "over" || name == "if match" {
				obj, err := s.Put(t.Context(), key, []byte("old"), store.PutOptions{})
				assert.OK(t, err)
				if name == "if match" {
					opts.IfMatch = obj.ETag
				}
			}
			k := &disk{map[uint64]string{}, map[uint64]map[string]uint64{}}
			s.sync = k.sync
			opts.Durable = c.durable
			_, err := s.Put(t.Context(), key, []byte("body"), opts)
			assert.OK(t, err)
			body, there := k.read(t, s.path, key)
			want := ""
			if c.durable || !c.local {
				want = "body"
			}
			assert.Equal(t, body, want, fmt.Sprintf("%s, %+v: there %t", name, c, there))
			assert.Equal(t, len(k.bodies), len(want)/4, fmt.Sprintf("%s, %+v: flushed files", name, c))
		}
	}
}

// TestFlushFails: a put whose flush fails isn't answered with success. If the body's flush fails, the present object
// stays. A file system that can't flush a directory isn't a failure.
func TestFlushFails(t *testing.T) {
	for _, c := range []struct {
		fails func(info os.FileInfo) bool
		with  error
		body  string
	}{
		{func(info os.FileInfo) bool { return info.Mode().IsRegular() }, syscall.EIO, "old"},
		{func(info os.FileInfo) bool { return info.Mode().IsRegular() }, syscall.EINVAL, "old"},
		{os.FileInfo.IsDir, syscall.EIO, "new"},
		{os.FileInfo.IsDir, syscall.EINVAL, "new"},
		{os.FileInfo.IsDir, syscall.ENOTSUP, "new"},
	} {
		s := opened(t)
		_, err := s.Put(t.Context(), "index/a", []byte("old"), store.PutOptions{})
		assert.OK(t, err)
		s.sync = func(f *os.File) error {
			if info, err := f.Stat(); err != nil || c.fails(info) {
				return errors.Join(err, c.with)
			}
			return nil
		}
		_, err = s.Put(t.Context(), "index/a", []byte("new"), store.PutOptions{Durable: true})
		refuses := c.body == "old" || c.with == syscall.EIO
		assert.Equal(t, errors.Is(err, c.with), refuses, fmt.Sprint(err))
		assert.Equal(t, strings.Contains(fmt.Sprint(err), "can't flush (fsync) a file in"), c.body == "old", fmt.Sprint(err))
		body, err := os.ReadFile(s.path + "/index/a")
		assert.OK(t, err)
		assert.Equal(t, string(body), c.body, c.with.Error())
	}
}

// TestWithoutFlush: on a file system that isn't local, and refuses every fsync, objects are stored as on a local one. If
// it flushes an empty file, and not the body, the disk is broken, and the present object stays.
func TestWithoutFlush(t *testing.T) {
	for _, with := range []error{syscall.EINVAL, syscall.EOPNOTSUPP, syscall.EIO, syscall.ENOSYS} {
		for _, broken := range []bool{false, true} {
			s := opened(t)
			s.local = false
			_, err := s.Put(t.Context(), "index/a", []byte("old"), store.PutOptions{})
			assert.OK(t, err)
			s.sync = func(f *os.File) error {
				if info, err := f.Stat(); broken && (err != nil || info.Size() == 0 || info.IsDir()) {
					return err
				}
				return with
			}
			_, err = s.Put(t.Context(), "index/a", []byte("new"), store.PutOptions{})
			assert.Equal(t, errors.Is(err, with), broken, fmt.Sprint(err))
			body, err := os.ReadFile(s.path + "/index/a")
			assert.OK(t, err)
			assert.Equal(t, string(body), map[bool]string{false: "new", true: "old"}[broken], with.Error())
			left, err := filepath.Glob(s.path + "/index/.*")
			assert.OK(t, err)
			assert.Equal(t, len(left), 0, fmt.Sprint(left))
		}
	}
}

// TestFlushWithoutItsFolder: if the folder of a put is removed while the put flushes its body, the put makes it again.
func TestFlushWithoutItsFolder(t *testing.T) {
	s := opened(t)
	s.local = false
	flushes := 0
	s.sync = func(*os.File) error {
		if flushes++; flushes == 1 {
			assert.OK(t, os.RemoveAll(s.path+"/index"))
		}
		return syscall.EINVAL
	}
	assert.OK(t, assert.Err(s.Put(t.Context(), "index/a", []byte("body"), store.PutOptions{})))
	body, err := os.ReadFile(s.path + "/index/a")
	assert.OK(t, err)
	assert.Equal(t, string(body), "body")
}
