// Package miniotest is the MinIO server that tests run against: a real one, which e2e/minio.sh
// has started. Tests that need it carry the build tag minio, and fail if there is none.
package miniotest

import (
	"os"
	"testing"
)

// User and Password are those of the server's root.
const (
	User     = "repolock"
	Password = "repolock-secret"
)

// Endpoint is the server's URL: http://127.0.0.1:9000.
func Endpoint(t testing.TB) string {
	t.Helper()
	endpoint := os.Getenv("REPOLOCK_E2E_MINIO")
	if endpoint == "" {
		t.Fatal("REPOLOCK_E2E_MINIO isn't set: run this by make e2e, which starts MinIO")
	}
	return endpoint
}
