//go:build minio

package minio_test

import (
	"testing"

	"github.com/repolock/repolock/internal/test/miniotest"
)

func TestContract(t *testing.T) {
	miniotest.Contract(t, miniotest.Kind.MinIO, func(_ string) bool { return true }) // store/s3 runs all rounds
}
