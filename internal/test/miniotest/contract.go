package miniotest

import (
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/storetest"
)

// Contract checks the contract on a bucket of each kind, by the URLs that url returns: Kind.S3
// or Kind.MinIO. light reports whether fewer rounds suffice.
func Contract(t *testing.T, url func(Kind, string) string, light func(kind string) bool) {
	for name, bucket := range Buckets(t) {
		t.Run(name, func(t *testing.T) {
			if name != "plain" {
				rounds.Long(t, "another kind of bucket")
			}
			open := func(t *testing.T) store.Store { return Open(t, url(bucket, t.Name())) }
			storetest.Run(t, storetest.Config{
				New:       open,
				Again:     func(t *testing.T, _ store.Store) store.Store { return open(t) },
				Precision: time.Second,
				Light:     light(name),
			})
		})
	}
}
