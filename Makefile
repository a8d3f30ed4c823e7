# What one can do here: make help.
GO ?= go
TOOL = $(GO) tool -modfile=tools/go.mod
SYSTEMS = darwin/arm64 windows/amd64 freebsd/amd64

.PHONY: help
help: ## show this
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/' | sort

.PHONY: build
build: ## build bin/repolock
	$(GO) build -trimpath -o bin/repolock ./cmd/repolock

.PHONY: test
test: unit e2e ## run all tests

# test.sh prints at least every 10 s what runs. Only a hang reaches the limits, however busy
# the machine is.
TEST = GO="$(GO)" sh e2e/test.sh

.PHONY: unit
unit: ## run the tests that need nothing but Go
	$(TEST) -timeout 2h ./...

# REPOLOCK_E2E_DOCKER=no runs MinIO as a process where there is Docker, too.
.PHONY: e2e
e2e: ## run the tests on a real MinIO, which is built, started and taken down
	GO="$(GO)" sh e2e/minio.sh with sh e2e/test.sh -count=1 -p 1 -tags e2e -timeout 4h ./e2e/... ./store/s3 ./store/minio

.PHONY: chaos
chaos: ## kill, stop and cut off real processes that contend for a lock
	GO="$(GO)" sh e2e/minio.sh with sh e2e/test.sh -count=1 -tags 'e2e chaos' -timeout 4h -run '^TestChaos' ./e2e

# What depends on MinIO's age: the older one costs another build.
.PHONY: old-minio
old-minio: ## run those tests that depend on MinIO's age on one of April 2025, which is built
	REPOLOCK_E2E_RELEASE=2025-04 sh e2e/minio.sh with $(GO) test -count=1 -p 1 -tags e2e -timeout 30m \
		-run '^(TestIfMatchOnAbsentKey|TestDoctor|TestBrokenLockStaysBroken|TestContract)$$' ./e2e ./store/s3 ./store/minio

# Those tests alone: the others of these packages are unit's.
.PHONY: system
system: ## run the tests that need programs which .ci/run installs
	@tests=$$(sed -n 's/^func \(Test[^(]*\)(.*/\1/p' $$(grep -l '^//go:build .*\bsystem\b' cmd/repolock/*_test.go e2e/*_test.go) | paste -s -d '|' -); \
		$(TEST) -count=1 -tags system -timeout 2h -run "^($$tests)$$" ./cmd/repolock ./e2e

# REPOLOCK_GUEST_TTL is the ttl of the guest's lock, 60s if unset.
.PHONY: paused-guest
paused-guest: ## pause a virtual machine that holds a lock, and count its writes after the loss
	sh e2e/minio.sh with $(GO) test -count=1 -tags 'e2e system' -timeout 40m -v -run '^TestPausedGuest$$' ./e2e

.PHONY: quirks
quirks: ## torture for 60 s on each kind of server that isn't quite S3
	TORTURE=60s $(GO) test -count=1 -timeout 2h -run '^TestQuirks$$' ./cmd/repolock

.PHONY: examples
examples: ## check and test the examples that are modules of their own
	cd examples/otel && $(GO) mod tidy -diff && $(GO) vet ./... && $(GO) test -count=1 ./...

.PHONY: race
race: ## run the tests that need nothing but Go under the race detector
	$(TEST) -race -timeout 2h ./...

.PHONY: packages
packages: ## build the archives, packages and the image of this commit into dist/
	sh packaging/packages.sh

.PHONY: packages-twice
packages-twice: ## build them twice, in two places, and compare
	sh packaging/twice.sh

.PHONY: kubernetes
kubernetes: ## look at the Kubernetes manifests with Kubernetes' own types
	cd packaging/kubernetes/check && $(GO) vet ./... && $(GO) test -count=1 ./...

.PHONY: demo
demo: ## two real backups and a real prune on a local directory
	sh e2e/local.sh

.PHONY: spec
spec: ## have Spin look at every state of the protocol's model
	sh spec/run.sh

SEEDS = cd internal/sim && $(GO) test -count=1 -run='^TestSeeds$$' -timeout=0

.PHONY: sim
sim: ## run simulated histories for 30 s
	@$(SEEDS) -seeds=0 -for=30s

.PHONY: sim-20000
sim-20000: ## run the 20,000 histories that must pass before a change lands
	@$(SEEDS) -seeds=20000

.PHONY: soak
soak: ## run simulated histories that nobody has run before, until stopped
	@$(SEEDS) -seeds=0 -from=$$(date +%s)000 -every=10s

.PHONY: mutants
mutants: ## put bugs into the engine, and have the simulator find them
	@$(GO) run ./internal/sim/mutants

.PHONY: fuzz
fuzz: ## fuzz what is parsed, 20 s each
	$(GO) test -run='^$$' -fuzz=FuzzDecode -fuzztime=20s ./replock
	$(GO) test -run='^$$' -fuzz=FuzzKeys -fuzztime=20s ./replock
	$(GO) test -run='^$$' -fuzz=FuzzParse -fuzztime=20s ./store/open
	$(GO) test -run='^$$' -fuzz=FuzzCheckKey -fuzztime=20s ./store

.PHONY: bench
bench: ## measure what a lock costs, beside the original protocol, restic and flock
	@sh e2e/minio.sh with $(GO) run ./e2e/bench $(BENCH)

.PHONY: bench-disk
bench-disk: ## what a put and a listing cost on this disk
	$(GO) test -run='^$$' -bench=. ./store/dir

.PHONY: lint
lint: fmt vet static imports clock legal ## all checks of the text

.PHONY: fmt
fmt: ## gofmt changes nothing
	@files=$$(gofmt -l .); test -z "$$files" || { echo "gofmt -w $$files"; exit 1; }

.PHONY: vet
vet: ## go vet, for this system and the others
	$(GO) vet ./...
	$(GO) vet -tags 'e2e chaos' ./...
	$(GO) vet -tags system ./...
	$(GO) vet -tags 'e2e system' ./...
	@for s in $(SYSTEMS); do echo "vet and build for $$s"; \
		GOOS=$${s%/*} GOARCH=$${s#*/} CGO_ENABLED=0 $(GO) vet ./... && \
		GOOS=$${s%/*} GOARCH=$${s#*/} CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/repolock || exit 1; done

.PHONY: static
static: ## staticcheck
	$(TOOL) staticcheck ./...
	$(TOOL) staticcheck -tags 'e2e chaos' ./...
	$(TOOL) staticcheck -tags system ./...

.PHONY: imports
imports: ## packages point one way: .depguard.yml
	$(TOOL) depguard ./...

.PHONY: clock
clock: ## time is read through the injected clock alone
	@! grep -nE 'time\.(Now|Since|Until|Sleep|After|AfterFunc|NewTimer|NewTicker|Tick)\(' \
		$$(find replock internal/refresh internal/original -name '*.go' ! -name '*_test.go') || \
		{ echo "read the clock that was injected"; exit 1; }

.PHONY: legal
legal: notices ## NOTICES has the licenses of all that is linked, and of nothing else
	@git diff --exit-code -- NOTICES || { echo "commit what has changed"; exit 1; }

.PHONY: notices
notices: ## write NOTICES anew
	$(GO) run ./internal/notices >NOTICES.new && mv NOTICES.new NOTICES
