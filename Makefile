# make help lists the targets.
GO ?= go
TOOL = $(GO) tool -modfile=tools/go.mod
SYSTEMS = darwin/arm64 windows/amd64 freebsd/amd64

.PHONY: help
help: ## show this
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/' | sort

.PHONY: build
build: ## build bin/repolock
	$(GO) build -trimpath -o bin/repolock ./cmd/repolock

# Three runs: make test while one works, .ci/run before a change lands, make proof once at its end.
.PHONY: test
test: ## run the short suite, in three minutes, on a real MinIO too if that is built
	GO="$(GO)" sh e2e/short.sh

.PHONY: ci
ci: ## run what must pass before a change lands, in 20 minutes
	bash .ci/run

.PHONY: proof
proof: ## run all the rest, in 90 minutes
	bash .ci/proof

.PHONY: programs
programs: ## install the programs that make system and make paused-guest need, as root on Debian
	sh .ci/programs

# test.sh prints at least every 10 s that it still runs. Only a hang reaches the limits, however busy
# the machine is.
TEST = GO="$(GO)" sh e2e/test.sh

# Build tags name what tests need: minio a real MinIO, programs what make programs installs, cloudstic a copy of
# Cloudstic's repository.
# REPOLOCK_E2E_RUN chooses the tests of e2e/ that a run takes: e2e/runs_test.go.

.PHONY: e2e
e2e: unit minio ## run the long suite: tests that need Go alone, and those on a real MinIO, which is built once

.PHONY: unit
unit: ## run the tests that need nothing but Go, the long ones too
	$(TEST) -timeout 2h ./...

# REPOLOCK_E2E_DOCKER=no runs MinIO as a process where there is Docker, too.
.PHONY: minio
minio: ## run the tests on a real MinIO, which is built, started and taken down
	REPOLOCK_E2E_RUN=minio GO="$(GO)" sh e2e/minio.sh with sh e2e/test.sh -count=1 -p 1 -tags minio -timeout 4h -run '^TestContract$$' ./e2e ./store/s3 ./store/minio

.PHONY: chaos
chaos: ## kill, stop and cut off real processes that contend for a lock
	REPOLOCK_E2E_RUN=chaos GO="$(GO)" sh e2e/minio.sh with sh e2e/test.sh -count=1 -tags minio -timeout 4h ./e2e

# Some tests depend on MinIO's age: the older MinIO costs another build.
.PHONY: old-minio
old-minio: ## build a MinIO of April 2025, and run the tests that depend on its age
	REPOLOCK_E2E_RELEASE=2025-04 REPOLOCK_E2E_RUN=old-minio GO="$(GO)" sh e2e/minio.sh with sh e2e/test.sh -count=1 -p 1 -tags minio -timeout 30m \
		-run '^TestContract$$' ./e2e ./store/s3 ./store/minio

.PHONY: system
system: ## run the tests that need the programs of make programs
	REPOLOCK_E2E_RUN=programs $(TEST) -count=1 -tags programs -timeout 2h ./e2e ./cmd/internal/programs ./locking/... ./store/dir ./store/internal/sftpwire ./store/sftp

.PHONY: protocol-race
protocol-race: ## race the client of examples/protocol, which is in Python, with ours for 300 rounds
	REPOLOCK_E2E_RUN=protocol-race $(TEST) -count=1 -tags programs -timeout 1h ./e2e

.PHONY: system-minio
system-minio: ## run the pages' commands of restic, rclone and Kopia on a real MinIO, and locks behind nginx
	REPOLOCK_E2E_RUN=programs-minio GO="$(GO)" sh e2e/minio.sh with sh e2e/test.sh -count=1 -tags 'minio programs' -timeout 1h ./e2e

# SECONDS is for how long processes contend for a lock on each server, 20 if unset. SERVERS are some of the SFTP servers.
.PHONY: servers
servers: servers-sftp servers-s3 ## try real servers: version, doctor's verdict, acquisitions and overlaps

.PHONY: servers-sftp
servers-sftp: ## doctor and torture on ten SFTP servers: a row each
	@sh e2e/servers/sftp.sh $(or $(SECONDS),20) $(SERVERS)

.PHONY: servers-s3
servers-s3: ## doctor and torture behind nginx, haproxy and caddy with TLS, before an S3 server: a row each
	@sh e2e/servers/fronts.sh $(SECONDS)

# REPOLOCK_GUEST_TTL is the ttl of the guest's lock, 60s if unset.
.PHONY: paused-guest
paused-guest: ## pause a virtual machine that holds a lock, and count its writes after the loss
	REPOLOCK_E2E_RUN=paused-guest sh e2e/minio.sh with $(GO) test -count=1 -tags 'minio programs' -timeout 40m -v ./e2e

.PHONY: quirks
quirks: ## torture for 60 s on each kind of server that isn't quite S3
	TORTURE=60s $(GO) test -count=1 -timeout 2h -run '^TestQuirks$$' ./cmd/repolock

# STORE2 is another URL of the same repository, as of a second gateway. NAME is the store's name in the row. REAL
# are flags: -short to repeat little.
.PHONY: real
real: ## prove a store of your own, make real STORE=URL, in some minutes
	@test -n "$(STORE)" || { echo "make real STORE=URL"; exit 64; }
	@$(GO) test -C e2e/real -count=1 -timeout 2h -run '^TestStore$$' $(REAL)

# OTHERS are flags of e2e/peers/judge.
.PHONY: torture-others
torture-others: ## judge the locks of other programs, as docs/evidence/torture-others.md does, in an hour
	@sh e2e/peers/torture.sh all $(OTHERS)

# CLOUDSTIC is a copy of Cloudstic's repository, BEFORE the path of an earlier repolock, and RACES are flags of
# e2e/peers/beside: -only s3,40 -runs 20.
.PHONY: beside-cloudstic
beside-cloudstic: ## race Cloudstic's own program with ours, make beside-cloudstic CLOUDSTIC=PATH: a row for each kind of race
	@sh e2e/minio.sh with sh e2e/beside.sh "$(CLOUDSTIC)" $(RACES)

# Its program is built from a copy of its repository, because no package of Debian's has it.
.PHONY: cloudstic
cloudstic: ## run the page of Cloudstic with its own program, make cloudstic CLOUDSTIC=PATH
	@test -e "$(CLOUDSTIC)/internal/engine/repolock.go" || { echo "make cloudstic CLOUDSTIC=PATH: name a copy of Cloudstic's repository"; exit 64; }
	REPOLOCK_E2E_CLOUDSTIC="$(abspath $(CLOUDSTIC))" REPOLOCK_E2E_RUN=cloudstic GO="$(GO)" sh e2e/minio.sh with sh e2e/test.sh -count=1 -tags 'minio programs cloudstic' -timeout 30m ./e2e

.PHONY: examples
examples: ## check and test the examples that are modules of their own
	@for d in $(dir $(wildcard examples/*/go.mod)); do echo "$$d"; \
		(cd "$$d" && $(GO) mod tidy -diff && $(GO) vet ./... && $(GO) test -count=1 ./...) || exit 1; done

# The race detector sees the test binaries, and the programs that these are under another name:
# the repolock of cmd/repolock, the guards of internal/procgroup. It can't see the repolock that
# the tests in e2e/ build as users do, so these are left to make e2e. The tests of
# internal/test/rounds' users repeat less here than in make e2e.
.PHONY: race
race: ## run the tests that need nothing but Go under the race detector
	$(TEST) -race -timeout 2h $$($(GO) list ./... | grep -v '/e2e$$')

# The engine, and what runs beside it, without the SDKs of stores: to compile these takes longest.
.PHONY: race-short
race-short: ## run the short tests of the packages that need it most under the race detector
	$(TEST) -race -short -vet=off -timeout 30m ./replock ./internal/refresh ./internal/torture ./e2e/peers/judge ./store ./store/dir ./store/memory ./store/internal/httptransport ./store/internal/sftpwire ./store/sftp ./cmd/internal/doctor ./cmd/internal/events ./locking

.PHONY: race-programs
race-programs: ## run the tests of locks in Redis and PostgreSQL, with the servers, under the race detector
	$(TEST) -race -count=1 -tags programs -timeout 2h ./locking/redis ./locking/postgres

.PHONY: packages
packages: ## build the archives, packages and the image of this commit into dist/
	sh packaging/packages.sh

.PHONY: packages-twice
packages-twice: ## build them twice, in two places, and compare
	sh packaging/twice.sh

.PHONY: kubernetes
kubernetes: ## check the Kubernetes manifests with Kubernetes' own types
	cd packaging/kubernetes/check && $(GO) vet ./... && $(GO) test -count=1 ./...

.PHONY: demo
demo: ## two real backups and a real prune on a local directory
	sh e2e/local.sh

.PHONY: demo-svg
demo-svg: ## record docs/demo.svg and docs/night.svg anew, in a minute and a half
	@$(GO) test -C e2e -count=1 -tags programs -run='^TestDemo$$' -timeout 30m -args -demo ../docs

.PHONY: spec
spec: ## check every state of the protocol's model with Spin
	sh spec/run.sh

SEEDS = cd internal/test/sim && $(GO) test -count=1 -run='^TestSeeds$$' -timeout=0

.PHONY: sim
sim: ## run 2,000 simulated histories, 200 of many deletions, 200 of steps, and 100 of crowds
	@$(SEEDS) -seeds=2000
	@$(SEEDS) -seeds=200 -scene=reaped
	@$(SEEDS) -seeds=200 -scene=stepped
	@$(SEEDS) -seeds=100 -scene=crowd

.PHONY: histories
histories: ## run 20,000 new simulated histories, and 2,000 each of many deletions, of steps, and of crowds
	@$(SEEDS) -seeds=20000 -from=0
	@$(SEEDS) -seeds=2000 -from=0 -scene=reaped
	@$(SEEDS) -seeds=2000 -from=0 -scene=stepped
	@$(SEEDS) -seeds=2000 -from=0 -scene=crowd

.PHONY: soak
soak: ## run new simulated histories until stopped
	@$(SEEDS) -seeds=0 -from=0 -every=10s

# MUTANTS are flags: -name EXPRESSION, -matrix PACKAGE, -search HISTORIES.
.PHONY: mutants
mutants: ## put bugs into the program, and check that the proof finds each
	@$(GO) run ./internal/test/mutants $(MUTANTS)

.PHONY: fuzz
fuzz: ## fuzz the parsers, 20 s each
	$(GO) test -run='^$$' -fuzz=FuzzDecode -fuzztime=20s ./replock/internal/wire
	$(GO) test -run='^$$' -fuzz=FuzzKeys -fuzztime=20s ./replock/internal/wire
	$(GO) test -run='^$$' -fuzz=FuzzParse -fuzztime=20s ./store/open
	$(GO) test -run='^$$' -fuzz=FuzzCheckKey -fuzztime=20s ./store
	$(GO) test -run='^$$' -fuzz=FuzzAnswers -fuzztime=20s ./store/internal/sftpwire

# BENCH are flags: -short to repeat little, -bench=Locks/SECTION to run one section alone.
ONCE = -run='^$$' -benchtime=1x -timeout 2h

.PHONY: bench
bench: ## measure what a lock costs, beside the original protocol, restic and flock
	@sh e2e/minio.sh with $(GO) test -C e2e $(TAGS) $(ONCE) -bench=Locks $(BENCH)

# BEFORE is another build of repolock, which is measured beside this one.
.PHONY: bench-queue
bench-queue: ## measure a lock that many clients want at once, beside flock and etcd
	@$(GO) test -C e2e -tags programs $(ONCE) -bench=Queue $(BENCH)

.PHONY: bench-start
bench-start: ## measure what the start of repolock's processes costs, in instructions
	@$(GO) test -C e2e -tags programs $(ONCE) -bench=Start $(BENCH)

.PHONY: bench-locks
bench-locks: ## measure what locks in a directory, Redis and PostgreSQL cost, beside other libraries
	cd locking/bench && $(GO) test -tags programs -run='^$$' -bench=. $(BENCH) ./...

.PHONY: bench-disk
bench-disk: ## measure what locks among many files, a put and a listing cost on this disk
	$(GO) test -run='^$$' -bench=. $(BENCH) ./store/dir
	@$(GO) test -C e2e -tags programs $(BENCH) $(ONCE) -bench=Disk

.PHONY: bench-sftp
bench-sftp: ## count the round trips of a lock over ssh, with and without a ControlMaster, and measure them at 80 ms each
	@$(GO) test -C e2e -tags programs $(ONCE) -bench=SFTP $(BENCH)

.PHONY: lint
lint: fmt sizes workflows compose vet static dead types imports clock legal api ## run all checks of the text

.PHONY: fmt
fmt: ## check that gofmt changes nothing
	@files=$$(gofmt -l .); test -z "$$files" || { echo "gofmt -w $$files"; exit 1; }

.PHONY: sizes
sizes: ## check that no large file, such as a binary, is committed
	@large=$$(git ls-files -z | xargs -0 ls -ln | awk '$$5 > 500000 { print $$9 }'); test -z "$$large" || { echo "too large for the tree: $$large"; exit 1; }

# A tag of an action can be moved, and a commit can't.
.PHONY: workflows
workflows: ## check the workflows of GitHub
	$(TOOL) actionlint -shellcheck= -pyflakes=
	@! grep -nE 'uses: [^.]' .github/workflows/*.yml | grep -vE '@[0-9a-f]{40} # v[0-9]' || { echo "pin an action by its commit, and name the version"; exit 1; }

# The second check adds the file of e2e/minio.sh.
.PHONY: compose
compose: ## check docker-compose.yml, if Docker Compose is installed
	@compose="docker compose"; $$compose version >/dev/null 2>&1 || compose=docker-compose; \
	! command -v $${compose%% *} >/dev/null 2>&1 || ! $$compose version >/dev/null 2>&1 || { $$compose config -q && \
		REPOLOCK_E2E_BIN=e2e/minio REPOLOCK_E2E_CLONE=lint $$compose -f docker-compose.yml -f e2e/minio/compose.yml config -q; }

# All tags together show every file of this system.
TAGS = -tags 'minio programs cloudstic'

.PHONY: vet
vet: ## run go vet
	$(GO) vet $(TAGS) ./...
	cd locking/bench && $(GO) mod tidy -diff && $(GO) vet -tags programs ./...

.PHONY: static
static: ## run staticcheck
	$(TOOL) staticcheck $(TAGS) ./...

# make systems compiles for these systems, too.
.PHONY: types
types: ## check the types on other systems
	$(GO) run ./internal/tool/types $(SYSTEMS)

.PHONY: systems
systems: ## run go vet, and build, for other systems
	@for s in $(SYSTEMS); do echo "vet and build for $$s"; \
		GOOS=$${s%/*} GOARCH=$${s#*/} CGO_ENABLED=0 $(GO) vet ./... && \
		GOOS=$${s%/*} GOARCH=$${s#*/} CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/repolock || exit 1; done

.PHONY: dead
dead: ## check that each function is used, if only by a test
	@dead=$$($(TOOL) deadcode -test $(TAGS) ./...); test -z "$$dead" || { echo "$$dead"; exit 1; }

.PHONY: api
api: ## check that the exported API is compatible with the last release's
	@GO="$(GO)" sh tools/api.sh

.PHONY: imports
imports: ## check that packages point one way: .depguard.yml
	$(TOOL) depguard ./...

.PHONY: clock
clock: ## check that time is read through the injected clock alone
	@! grep -nE 'time\.(Now|Since|Until|Sleep|After|AfterFunc|NewTimer|NewTicker|Tick)\(' \
		$$(find replock locking internal/refresh internal/retry internal/test/cloudsticlock -name '*.go' \
		! -name '*_test.go' ! -path '*/lockingtest/*' ! -path '*/bench/*') || \
		{ echo "read the clock that was injected"; exit 1; }

.PHONY: legal
legal: notices ## check that NOTICES has the licenses of all that is linked, and no others
	@git diff --exit-code -- NOTICES || { echo "commit what has changed"; exit 1; }

.PHONY: notices
notices: ## write NOTICES anew
	$(GO) run ./internal/tool/notices >NOTICES.new && mv NOTICES.new NOTICES
