package dir

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// Delete removes the file, and then the directories above it that are empty.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.delete(ctx, key); err != nil {
		return failed("delete", key, err)
	}
	return nil
}

func (s *Store) delete(ctx context.Context, key string) error {
	if err := check(ctx, key); err != nil {
		return err
	}
	root, err := s.open()
	if err != nil {
		return err
	}
	defer root.Close()
	dir, name := split(key)
	if err := s.remove(ctx, root, dir, name); err != nil {
		return err
	}
	prune(root, dir, s.now())
	return nil
}

func (s *Store) remove(ctx context.Context, root *os.Root, dir, name string) error {
	absent := func(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) }
	d, err := openDir(root, dir)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	unlock, err := s.lock(ctx, root)
	if err != nil {
		return err
	}
	defer unlock()
	info, err := d.Lstat(name)
	if absent(err) || err == nil && info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	if err := d.Remove(name); !absent(err) {
		return err
	}
	return nil
}
