package dir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
)

// An object is a file, and its key is the file's path below the directory.
func Example() {
	ctx := context.Background()
	path, err := os.MkdirTemp("", "repository")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(path)
	s, err := dir.Open(ctx, path)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.Put(ctx, "jobs/nightly", []byte("done\n"), store.PutOptions{Durable: true}); err != nil {
		fmt.Println(err)
		return
	}
	body, err := os.ReadFile(filepath.Join(path, "jobs", "nightly"))
	fmt.Printf("%s%v\n", body, err)

	_, err = dir.Open(ctx, filepath.Join(path, "missing")) // it creates nothing
	fmt.Println(errors.Is(err, store.ErrNotFound))
	// Output:
	// done
	// <nil>
	// true
}
