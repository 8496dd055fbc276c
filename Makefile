# `make` lists the targets. CI calls the same ones.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := $(CURDIR)/.bin
# go.work has all modules but those of tools/.
MODULES := $(shell sed -nE 's|^[[:space:]]+\./(.+)$$|\1|p' go.work)
RELEASED := $(filter-out scripts bench contract/integration docs/%,$(MODULES))
# What needs real servers is tested apart, after the rest: a busy machine is no fault
# of theirs.
REAL := contract/integration bench
OFFLINE := $(filter-out $(REAL),$(MODULES))
PACKAGES := $(MODULES:%=./%/...)

ARGS ?=
BASE ?=
BENCH ?= .
FUZZTIME ?= 10s
TIMEOUT ?= 10m
RUN ?=
VERSION ?=

# Rules of docs/spec.md that wait for the modules of Redis, Postgres and MongoDB.
PENDING :=

# $(call each,command) runs a command in every module, or in those of a second
# argument, and fails if it failed in one.
each = status=0; for module in $(or $(2),$(MODULES)); do echo "$$module:"; (cd $$module && $(1)) || status=1; done; exit $$status

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: ## run the demo program (ARGS="-backend=redis"; it starts a server unless -url=... names one)
	@scripts/demo $(ARGS)

.PHONY: test
test: fmt-check modules vet rules cover test-offline test-integration ## everything that needs no tool besides Go: checks, and all tests with the race detector, on real servers too

.PHONY: test-offline
test-offline: ## the tests that need no server, with the race detector
	go test -race -shuffle=on -timeout=$(TIMEOUT) $(OFFLINE:%=./%/...)

.PHONY: backends
backends: ## a Docker daemon and the images of servers for the tests, as far as missing, and the environment that names them
	@scripts/backends

# The tests on Postgres and MongoDB are run by themselves, and fewer at a time: these servers
# need more of two cores.
HEAVY := ^(Test|Fuzz)(Demo)?(Postgres|Mongo)

.PHONY: test-integration
test-integration: COUNT ?= 1
test-integration: PARALLEL ?= 6
test-integration: ## the tests on real servers, which it brings up (RUN=regexp COUNT=1)
	@environment=$$(scripts/backends); eval "$$environment"; set -x; \
	run() { go test -race -shuffle=on -p=1 -timeout=20m -count=$(COUNT) "$$@" $(REAL:%=./%/...); }; \
	$(if $(RUN),run -parallel=$(PARALLEL) -run='$(RUN)',run -parallel=$(PARALLEL) -skip='$(HEAVY)' && run -parallel=4 -run='$(HEAVY)')

.PHONY: test-short
test-short: ## the tests, quick and without the race detector
	go test -short -timeout=$(TIMEOUT) $(OFFLINE:%=./%/...)

.PHONY: test-concurrent
test-concurrent: COUNT ?= 50
test-concurrent: ## the tests of races, many times (COUNT=50)
	go test -race -shuffle=on -timeout=$(TIMEOUT) -run='ConcurrentSafe|Contract/Concurrency' -count=$(COUNT) $(OFFLINE:%=./%/...)

.PHONY: lint
lint: $(BIN)/golangci-lint ## golangci-lint in every module
	@$(call each,$< run ./...)

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## format the code
	$< fmt

.PHONY: fmt-check
fmt-check: ## fail if gofmt would change something
	@unformatted=$$(find . -name '*.go' -not -path '*/testdata/*' -not -path './.*' -exec gofmt -l {} +); \
	[ -z "$$unformatted" ] || { echo "not formatted:" $$unformatted >&2; exit 1; }

.PHONY: vet
vet: ## go vet
	go vet $(PACKAGES)

.PHONY: vet-386
vet-386: ## go vet for a 32-bit machine
	GOARCH=386 CGO_ENABLED=0 go vet $(PACKAGES)

.PHONY: modules
modules: ## fail if core needs more than the standard library, or a module is not tested
	@scripts/modules

.PHONY: rules
rules: ## fail if a rule of docs/spec.md has no test (ARGS=-table prints the tests of each)
	@go run ./scripts/rules -pending=$(PENDING) $(ARGS)

.PHONY: cover
cover: ## fail if the state machine of a lease is not covered by tests
	@scripts/cover

.PHONY: standalone
standalone: ## build and test every module as its users have it, without go.work
	@export GOWORK=off; $(call each,go build -o /dev/null ./... && go vet ./...)
	@export GOWORK=off; $(call each,go test -short -timeout=$(TIMEOUT) ./...,$(OFFLINE))

.PHONY: tidy
tidy: MODULES += tools tools/lint
tidy: ## go mod tidy in every module
	@export GOWORK=off; $(call each,go mod tidy)

.PHONY: tidy-check
tidy-check: MODULES += tools tools/lint
tidy-check: ## fail if go mod tidy would change something
	@export GOWORK=off; $(call each,go mod tidy -diff)

.PHONY: vuln
vuln: $(BIN)/govulncheck ## known vulnerabilities in what we call
	@export GOWORK=off; $(call each,$< ./...)

.PHONY: api
api: $(BIN)/apidiff ## what changed in the API since the last release (BASE=commit)
	@scripts/api "$(BASE)" $(RELEASED)

.PHONY: bench
bench: COUNT ?= 6
bench: $(BIN)/benchstat ## benchmarks that need no server (BENCH=regexp COUNT=6), kept in bench.txt
	go test -run='^$$' -bench='$(BENCH)' -count=$(COUNT) $(OFFLINE:%=./%/...) | tee bench.txt
	$< bench.txt

.PHONY: bench-redis bench-postgres
bench-redis bench-postgres: bench-%: ## locco against the raw driver on a store (ARGS="-case=latency -rounds=40"; ARGS=-help)
	@environment=$$(LOCCO_BACKENDS=$* scripts/backends); eval "$$environment"; go run ./bench -backend=$* $(ARGS)

.PHONY: fuzz
fuzz: ## every fuzz target that needs no server for a while (FUZZTIME=10s)
	@scripts/fuzz $(FUZZTIME) $(OFFLINE)

.PHONY: release-check
release-check: ## fail if the tree is not ready to be tagged (VERSION=v0.1.0)
	@scripts/release-check "$(VERSION)" $(RELEASED)

# The linter has a module of its own: with the other tools in it, its dependencies
# would be others than those it is released with.
$(BIN)/golangci-lint: tools/lint/go.mod
	GOWORK=off GOBIN=$(BIN) go install -C tools/lint tool
	@touch $@

$(BIN)/apidiff $(BIN)/benchstat $(BIN)/govulncheck: $(BIN)/.tools
$(BIN)/.tools: tools/go.mod
	GOWORK=off GOBIN=$(BIN) go install -C tools tool
	@touch $@
