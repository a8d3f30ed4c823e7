//go:build e2e

package minio_test

import (
	"testing"
	"time"

	"github.com/repolock/repolock/internal/miniotest"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/storetest"
)

func TestContract(t *testing.T) {
	for name, bucket := range miniotest.Buckets(t) {
		t.Run(name, func(t *testing.T) {
			url := func(t *testing.T) string { return bucket.MinIO(t.Name()) }
			storetest.Run(t, storetest.Config{
				New:       func(t *testing.T) store.Store { return miniotest.Open(t, url(t)) },
				Again:     func(t *testing.T, _ store.Store) store.Store { return miniotest.Open(t, url(t)) },
				Precision: time.Second,
				Light:     true, // in full by store/s3
			})
		})
	}
}
