//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// flags puts the flags of n shared locks. The first ones of a listing are the youngest, as if
// their holders refreshed them.
func flags(ctx context.Context, s store.Store, n int) error {
	key, body, err := specimen(ctx, s)
	if err != nil {
		return err
	}
	stem := key[:strings.LastIndex(key, "-")+1]
	var next atomic.Int64
	next.Store(int64(n))
	const writers = 16
	errs := make(chan error, writers)
	for range writers {
		go func() {
			var err error
			for i := next.Add(-1); i >= 0 && err == nil; i = next.Add(-1) {
				id := fmt.Sprintf("%032x", i)
				_, err = s.Put(ctx, stem+id, body(id), store.PutOptions{})
			}
			errs <- err
		}()
	}
	var all []error
	for range writers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// specimen returns the key and the body of a lock of another machine. The body is a real
// lock's, with another id and the present time.
func specimen(ctx context.Context, s store.Store) (key string, body func(id string) []byte, err error) {
	l, err := replock.New(s, replock.Options{})
	if err != nil {
		return "", nil, err
	}
	k, err := l.Shared(ctx, "backup")
	if err != nil {
		return "", nil, err
	}
	raw, _, err := s.Get(ctx, k.Key(), 1<<16)
	if err = errors.Join(err, k.Release(ctx)); err != nil {
		return "", nil, err
	}
	fields := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // a float would round the largest of them
	if err := decoder.Decode(&fields); err != nil {
		return "", nil, err
	}
	fields["host_id"], fields["boot_id"] = "another", "another"
	return k.Key(), func(id string) []byte {
		mine, now := maps.Clone(fields), time.Now().UTC()
		mine["id"], mine["refreshed_at"], mine["expires_at"] = id, now, now.Add(replock.DefaultTTL)
		raw, err := json.Marshal(mine)
		if err != nil {
			panic(err) // it was JSON before
		}
		return raw
	}, nil
}
