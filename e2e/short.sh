#!/bin/sh
# The short suite: go test -short, then some tests on MinIO if its server needs no build.
#
#   sh e2e/short.sh
set -eu

cd "$(dirname "$0")/.."
echo "the short suite takes about three minutes once built; make e2e runs the long suite"
# make lint runs go vet.
# The packages that take longest begin first.
sh e2e/test.sh -short -vet=off -timeout 30m ./cmd/repolock ./e2e ./replock ./internal/test/sim ./locking/lockingtest ./...
if sh e2e/minio.sh here; then
	# As a process: all of Docker can have no more of a busy machine than one of its processes.
	REPOLOCK_E2E_RUN=minio-short REPOLOCK_E2E_DOCKER=${REPOLOCK_E2E_DOCKER:-no} sh e2e/minio.sh with sh e2e/test.sh -short -vet=off -count=1 -tags minio -timeout 30m \
		-run '^TestContract$' ./e2e ./store/s3 ./store/minio # e2e takes its own from REPOLOCK_E2E_RUN
else
	echo "MinIO isn't built here: make e2e builds it, once, and runs its tests"
fi
