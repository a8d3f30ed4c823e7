//go:build minio

package s3_test

import (
	"testing"

	"github.com/repolock/repolock/internal/test/miniotest"
)

func TestContract(t *testing.T) {
	miniotest.Contract(t, miniotest.Kind.S3, func(name string) bool { return name != "plain" })
}
