package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

func Example() {
	ctx := context.Background()
	var s store.Store = memory.New(memory.Options{}) // or open.Store(ctx, "s3://backups/nightly")

	for _, key := range []string{"jobs/b", "jobs/a", "other"} {
		if _, err := s.Put(ctx, key, []byte("body of "+key), store.PutOptions{}); err != nil {
			fmt.Println(err)
			return
		}
	}
	keys, err := store.Keys(ctx, s, "jobs/")
	fmt.Println(keys, err)
	body, _, err := s.Get(ctx, "jobs/a", 1<<20)
	fmt.Printf("%s %v\n", body, err)
	fmt.Println(s.Delete(ctx, "jobs/a"))
	_, _, err = s.Get(ctx, "jobs/a", 1<<20)
	fmt.Println(err, errors.Is(err, store.ErrNotFound))
	// Output:
	// [jobs/a jobs/b] <nil>
	// body of jobs/a <nil>
	// <nil>
	// get "jobs/a": not found true
}

// A condition prevents a Put from overwriting an object that it doesn't know. A program must first look whether
// the store keeps conditions.
func ExamplePutOptions() {
	ctx := context.Background()
	s := memory.New(memory.Options{})
	fmt.Println(s.Properties().IfAbsent, s.Properties().IfMatch)

	first, err := s.Put(ctx, "counter", []byte("1"), store.PutOptions{IfAbsent: true})
	fmt.Println(err)
	_, err = s.Put(ctx, "counter", []byte("1"), store.PutOptions{IfAbsent: true})
	fmt.Println(err)

	_, err = s.Put(ctx, "counter", []byte("2"), store.PutOptions{IfMatch: first.ETag})
	fmt.Println(err)
	_, err = s.Put(ctx, "counter", []byte("2"), store.PutOptions{IfMatch: first.ETag})
	fmt.Println(errors.Is(err, store.ErrPrecondition))
	// Output:
	// kept kept
	// <nil>
	// put "counter": precondition failed
	// <nil>
	// true
}

// counted is a decorator: a Store that counts the puts of another Store. It hides optional abilities such as
// DeleteIfMatch, unless it declares their methods and calls functions such as store.DeleteIfMatch in them.
type counted struct {
	store.Store
	puts atomic.Int64
}

func (c *counted) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	c.puts.Add(1)
	return c.Store.Put(ctx, key, body, opts)
}

func (c *counted) DeleteIfMatch(ctx context.Context, key, etag string) error {
	return store.DeleteIfMatch(ctx, c.Store, key, etag)
}

func ExampleStore_decorator() {
	ctx := context.Background()
	s := &counted{Store: memory.New(memory.Options{})}
	o, err := s.Put(ctx, "a", nil, store.PutOptions{})
	fmt.Println(err)
	fmt.Println(s.DeleteIfMatch(ctx, "a", o.ETag))
	fmt.Println(s.puts.Load(), "put")
	// Output:
	// <nil>
	// <nil>
	// 1 put
}
