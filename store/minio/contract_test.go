//go:build e2e

package minio_test

import (
	"testing"

	"github.com/repolock/repolock/internal/miniotest"
)

func TestContract(t *testing.T) {
	miniotest.Contract(t, miniotest.Kind.MinIO, func(_ string) bool { return true }) // in full by store/s3
}
