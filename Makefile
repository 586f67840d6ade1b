# Fairlead. `make` lists the targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VERSION ?= 0.1.0-dev
BIN     := $(CURDIR)/bin
TOOLS   := $(BIN)/tools
CLUSTER := $(BIN)/cluster
CRDS    := charts/fairlead-operator/files/crds
LDFLAGS := -s -w -X github.com/fairlead-dev/fairlead/internal/version.version=$(VERSION)
PROGRAMS := fairlead fairlead-server fairlead-operator

# Another minor version of Kubernetes for the test cluster: one of test/cluster/kubernetes.
KUBERNETES ?=
ifneq ($(KUBERNETES),)
export FAIRLEAD_KUBERNETES := $(KUBERNETES)
endif

# FIPS=1 compiles with Go's FIPS 140-3 module, whose certified version this is, in place of the toolchain's packages.
FIPS ?=
ifneq ($(FIPS),)
export GOFIPS140 := v1.0.0
endif

# Linters, tests and programs are compiled in one way, so that Go's cache needs each package once. Only the race
# detector needs cgo.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)

# The packages of the test cluster that are ours; ./... would compile Kubernetes once more with other flags.
CLUSTER_PACKAGES := . ./internal/... ./mkimage ./images/...

# A context of the kubeconfig, for the demo in a cluster that exists: kind, k3d, minikube, Docker Desktop, or another (docs/build/testing.md).
CONTEXT ?= $(FAIRLEAD_DEMO_CONTEXT)

##@ Main
.PHONY: help quickstart build demo demo-down
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: ## Service, agent and forwarder on this machine; no root, no cluster (TARGET=3000: your web server there answers)
	@mkdir -p $(BIN)
	@go build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/fairlead-server
	@exec $(BIN)/fairlead-server quickstart $(TARGET)

build: ## Build the three programs into bin/ (FIPS=1: with Go's FIPS 140-3 module)
	@mkdir -p $(BIN)
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/ $(addprefix ./cmd/,$(PROGRAMS))

demo: ## From nothing to a pod that calls http://hello.demo (root on Linux; CONTEXT=kind-kind: in a cluster of yours, without root)
	@FAIRLEAD_DEMO_CONTEXT='$(CONTEXT)' hack/demo.sh up

demo-down: ## Remove every trace of the demo (CONTEXT= as it was given)
	@FAIRLEAD_DEMO_CONTEXT='$(CONTEXT)' hack/demo.sh down

##@ Tests
LOAD_TESTS := TestChain_UnderLoad|TestChain_KilledHop
# The race detector watches all but SQLite's code, which is translated from C, has its own locks, and takes half of
# the time of the suites with a store when it is watched. FIPS=1 does without it: the code is the same.
RACE_ENV = $(if $(FIPS),,CGO_ENABLED=1)
RACE = $(if $(FIPS),,-race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc/...=-race=false)
.PHONY: test
test: envtest-assets helm idp interop pebble ## Unit, property and envtest suites, with the race detector; no root (FIPS=1: in FIPS mode)
	KUBEBUILDER_ASSETS="$$($(CLUSTER) build --print-dir)" FAIRLEAD_HELM="$$($(CLUSTER) build --only helm --print-dir)/helm" FAIRLEAD_IDP=$(BIN)/idp \
		FAIRLEAD_HELM4="$$($(CLUSTER) build --only helm4 --print-dir)/helm" FAIRLEAD_INTEROP=$(BIN)/interop FAIRLEAD_PEBBLE=$(BIN)/pebble \
		$(RACE_ENV) go test $(RACE) -timeout 20m $$(go list ./... | grep -v /test/repo) # which verify runs
	go test -run '$(LOAD_TESTS)' ./test/bench # a thousand connections at a time, which the race detector is too slow for
	go test -C test/cluster $(filter-out .,$(CLUSTER_PACKAGES)) # e2e runs what starts nodes
	go test -C test/client -count=1 ./... # it and the next two read files outside their module, which the cache does not notice
	go test -C test/promql -count=1 ./...
	FAIRLEAD_HELM="$$($(CLUSTER) build --only helm --print-dir)/helm" go test -C packaging -count=1 ./...

.PHONY: deps
deps: ## Install the Debian packages that the tests need, or print their names
	@hack/deps.sh

.PHONY: idp
idp: ## Build the identity providers of the login tests, bin/idp (a few minutes the first time)
	@mkdir -p $(BIN)
	@go build -C test/idp -o $(BIN)/idp . # as vet and the linters compile it, whose cache it shares

.PHONY: interop
interop: ## Build the client and server of gRPC's interoperability tests, bin/interop
	@mkdir -p $(BIN)
	@go build -C test/interop -o $(BIN)/interop . # likewise

.PHONY: pebble
pebble: ## Build the ACME server of the tests of the public edge's certificates, bin/pebble
	@mkdir -p $(BIN)
	@go build -C test/pebble -o $(BIN)/pebble github.com/letsencrypt/pebble/v2/cmd/pebble

.PHONY: e2e
e2e: build airgap cluster-build ## The suite on a real cluster (root on Linux; KUBERNETES=1.34: on another version; FIPS=1)
	go test -C test/cluster -timeout 10m .
	FAIRLEAD_CLUSTER_BIN=$(CLUSTER) go test -count=1 -timeout 75m -v ./test/e2e/...

.PHONY: e2e-kind e2e-k3d
e2e-kind: ## The suite on a throwaway cluster of kind (needs Docker, kubectl and helm)
	@hack/e2e-distribution.sh kind

e2e-k3d: ## The suite on a throwaway cluster of k3d (likewise)
	@hack/e2e-distribution.sh k3d

.PHONY: dashboard-test dashboard-screenshots
dashboard-test: ## The dashboard and the agent's inspector in a real browser (needs chromium)
	FAIRLEAD_REQUIRE_CHROMIUM=1 go test -count=1 -v -run TestDashboard_InBrowser ./internal/service/dashboard
	FAIRLEAD_REQUIRE_CHROMIUM=1 go test -count=1 -v -run TestInspector ./internal/agent/inspect/page

dashboard-screenshots: ## Renew the pictures of docs/dashboard and docs/inspector (needs chromium and the font Inter)
	go test -count=1 -run TestScreenshots ./internal/service/dashboard -screenshots $(CURDIR)/docs/dashboard
	go test -count=1 -run TestScreenshots ./internal/agent/inspect/page -screenshots $(CURDIR)/docs/inspector

.PHONY: recording
recording: ## Renew docs/recording.svg, the main job in two terminals (needs tmux and the cluster of make demo)
	@hack/recording.sh

.PHONY: soak soak-load soak-replicas
SOAK ?= FAIRLEAD_E2E_OUTAGE=10m FAIRLEAD_E2E_ROLLOUTS=20 FAIRLEAD_E2E_ENDPOINTS=1000 FAIRLEAD_E2E_CHURN=2 FAIRLEAD_E2E_CALLS=200 FAIRLEAD_E2E_REST=15m
soak: build cluster-build soak-load soak-replicas ## soak-load, soak-replicas, then outages, rollouts and rest for two hours, at 1,000 endpoints (root on Linux; see docs/build/testing.md)
	FAIRLEAD_CLUSTER_BIN=$(CLUSTER) $(SOAK) go test -count=1 -timeout 4h -v ./test/e2e \
		-run 'TestOutage_KeepsServicesAndTraffic|TestRollout_LosesNoRequest|TestServer_RestartKeepsTraffic|AbsenceKeepsTraffic|TestManager_WritesNothingAtRest'

soak-load: ## The data plane for a quarter of an hour: 10 GiB compared, short connections for a minute, churn for ten
	FAIRLEAD_LOAD_MIB=10240 FAIRLEAD_LOAD_SHORT_SECONDS=60 FAIRLEAD_LOAD_CHURN_SECONDS=600 \
		go test -count=1 -timeout 1h -v -run '$(LOAD_TESTS)' ./test/bench

soak-replicas: ## Servers on one PostgreSQL for 25 minutes: restarts, kills, an outage, sealed connections; holds the targets (a quiet machine)
	FAIRLEAD_REPLICAS_SEALED=10m FAIRLEAD_REPLICAS_TARGETS=1 FAIRLEAD_REPLICAS_RESTARTS=20 FAIRLEAD_REPLICAS_KILLS=20 FAIRLEAD_REPLICAS_OUTAGE=2m \
		FAIRLEAD_REPLICAS_REVOCATIONS=100 FAIRLEAD_REPLICAS_EVENTS=1000 FAIRLEAD_REPLICAS_AGENTS=1000 FAIRLEAD_REPLICAS_RATE=200 \
		go test -count=1 -parallel 1 -timeout 1h -v -run TestReplicas ./test/replicas
	FAIRLEAD_HISTORY_SEED=2 go test -count=1 -timeout 30m -v -run TestHistory ./internal/service

.PHONY: compat
# The version before this one; a tag, once there are releases.
COMPAT_REF ?= c6cae9e5a20215ff1a5039d6395b2af1b5908b82
compat: envtest-assets ## Agents, operators and servers of the version before (COMPAT_REF=) beside this one's, and upgrades
	@hack/compat.sh $(COMPAT_REF)
	KUBEBUILDER_ASSETS="$$($(CLUSTER) build --print-dir)" FAIRLEAD_COMPAT_BIN=$(CURDIR)/dist/compat FAIRLEAD_REQUIRE_POSTGRES=1 \
		go test -count=1 -parallel 3 -timeout 20m -v -run '^TestCompat_' ./test/replicas

.PHONY: upgrade
upgrade: build cluster-build ## Server, operator and agents upgraded from COMPAT_REF= in every order, and back, under load (root on Linux)
	@hack/compat.sh $(COMPAT_REF)
	FAIRLEAD_CLUSTER_BIN=$(CLUSTER) FAIRLEAD_COMPAT_BIN=$(CURDIR)/dist/compat go test -count=1 -timeout 40m -v -run '^TestUpgrade_InEveryOrder$$' ./test/e2e

.PHONY: bench bench-wan bench-check bench-baseline
BENCH_OUT ?= dist/bench.json
BENCH_RUN  = mkdir -p $(dir $(BENCH_OUT)) && go test -count=1 -timeout 60m -run '^$$' -bench '^BenchmarkChain$$' -benchtime 1x ./test/bench \
	-args -out $(abspath $(BENCH_OUT)) $(if $(filter quick,$(BENCH)),-quick) $(BENCH_ARGS)
bench: ## The chain beside raw TLS, plain relays and HAProxy, in one run (BENCH=quick: two minutes)
	$(BENCH_RUN)

.PHONY: bench-access
bench-access: ## What EndpointAccess objects cost a connection: none, and 1,000 with 10,000 pods (seconds)
	go test -count=1 -run '^$$' -bench '^BenchmarkAccess$$' -benchtime 1x ./internal/operator/forwarder

.PHONY: bench-inspect
bench-inspect: ## The agent's CPU time for a request with its inspector off and on (twelve minutes)
	go test -count=1 -run '^$$' -bench '^BenchmarkInspect$$' -benchtime 1x -timeout 20m ./internal/agent

bench-check: ## The same, held against the goals and test/bench/baseline.json; fails when it is worse by more than the noise
	$(BENCH_RUN) -check $(CURDIR)/test/bench/baseline.json

bench-baseline: ## The same, kept as test/bench/baseline.json: on a quiet machine, to be committed
	$(MAKE) bench BENCH_OUT=test/bench/baseline.json

bench-wan: ## The same over an emulated link of 80 ms, with bbr and without, without loss and with it (root on Linux; BENCH=quick: two minutes)
	go test -count=1 -timeout 60m -run '^$$' -bench '^BenchmarkWAN$$' -benchtime 1x ./test/bench -args $(if $(filter quick,$(BENCH)),-quick) $(BENCH_ARGS)

.PHONY: bench-replicas
bench-replicas: ## Three servers beside one: CPU a request, direct and relayed; events and revocations (two minutes)
	FAIRLEAD_REPLICAS_BENCH=1 go test -count=1 -timeout 15m -v -run '^TestRatios$$' ./test/replicas

.PHONY: bench-store
bench-store: ## Stores of 1,000 and of 100,000 endpoints; 100 watchers (two minutes)
	go test -run '^$$' -bench . -benchtime 1x -v ./test/bench/store

.PHONY: bench-scale
bench-scale: envtest-assets ## The manager with 1, 1,000 and 10,000 endpoints beside a bare client (half an hour)
	KUBEBUILDER_ASSETS="$$($(CLUSTER) build --print-dir)" go test -run '^$$' -bench . -benchtime 1x -v -timeout 90m ./test/bench/scale

.PHONY: fuzz
FUZZTIME ?= 30s
fuzz: ## Every fuzz target for FUZZTIME each
	@hack/fuzz.sh $(FUZZTIME)

##@ Source
.PHONY: generate reference manifests fmt lint verify
generate: $(TOOLS)/controller-gen reference ## Write deepcopy methods, and what `make reference` writes
	$(TOOLS)/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/...

reference: ## Write the generated parts of docs: commands, values, errors, conditions (metrics: go test ./test/monitoring -update)
	go test -count=1 -run '^TestReference_' ./cmd/... ./test/repo -update

manifests: $(TOOLS)/controller-gen ## Write CRDs and rules, and the charts' copies of them, of alerts and of dashboards
	$(TOOLS)/controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	$(TOOLS)/controller-gen rbac:roleName=fairlead-operator-manager,fileName=manager.yaml paths=./internal/operator/controller/... output:rbac:dir=config/rbac
	$(TOOLS)/controller-gen rbac:roleName=fairlead-operator-forwarder,fileName=forwarder.yaml paths=./internal/operator output:rbac:dir=config/rbac
	$(TOOLS)/controller-gen rbac:roleName=fairlead-operator-forwarder-pods,fileName=forwarder-pods.yaml paths=./internal/operator/forwarder/podidentity/... output:rbac:dir=config/rbac
	$(TOOLS)/controller-gen rbac:roleName=fairlead-operator-exporter,fileName=exporter.yaml paths=./internal/operator/exporter/... output:rbac:dir=config/rbac
	@mkdir -p $(CRDS) && cp config/crd/bases/*.yaml $(CRDS)/
	@for c in server operator; do cp docs/prometheus/fairlead-$$c.rules.yaml charts/fairlead-$$c/files/rules.yaml; done
	@cp docs/grafana/fairlead-{service,endpoint}.json charts/fairlead-server/files/dashboards/
	@cp docs/grafana/fairlead-{operator,exporter}.json charts/fairlead-operator/files/dashboards/

fmt: ## Format the sources
	gofmt -w $$(git ls-files '*.go')

lint: $(TOOLS)/golangci-lint ## Run the linters
	$(TOOLS)/golangci-lint run ./...
	cd test/cluster && $(TOOLS)/golangci-lint run --config ../../.golangci.yml $(CLUSTER_PACKAGES)
	cd test/client && $(TOOLS)/golangci-lint run --config ../../.golangci.yml ./...
	cd test/promql && $(TOOLS)/golangci-lint run --config ../../.golangci.yml ./...
	cd test/workflows && $(TOOLS)/golangci-lint run --config ../../.golangci.yml ./...
	cd test/idp && $(TOOLS)/golangci-lint run --config ../../.golangci.yml ./...
	cd test/interop && $(TOOLS)/golangci-lint run --config ../../.golangci.yml ./...
	cd packaging && $(TOOLS)/golangci-lint run --config ../.golangci.yml ./...

verify: generate manifests lint ## Regenerate, vet, lint, check import rules; fails on any difference
	go vet ./...
	go vet -C test/cluster $(CLUSTER_PACKAGES)
	go vet -C test/client ./...
	go vet -C test/promql ./...
	go vet -C test/workflows ./...
	go vet -C test/idp ./...
	go vet -C test/interop ./...
	go vet -C packaging ./...
	@$(MAKE) licenses >/dev/null
	go test -count=1 ./test/repo/... # it reads what git lists
	go test -C test/workflows -count=1 ./... # it reads files outside its module, which the cache does not notice
	go mod tidy -diff && go mod tidy -C test/client -diff && go mod tidy -C test/idp -diff
	go mod tidy -C test/interop -diff && go mod tidy -C test/promql -diff && go mod tidy -C test/workflows -diff
	go mod tidy -C packaging -diff && go mod tidy -C test/pebble -diff
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "run make fmt:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	@git diff --exit-code || { echo "make verify: the files above differ from what their sources generate; commit them"; exit 1; }

.PHONY: vulncheck
VULNDB ?=
vulncheck: ## Known vulnerabilities of what the modules call (VULNDB=https://vuln.go.dev, or file:///its/folder)
	@hack/vulncheck.sh $(VULNDB)

.PHONY: release-draft
release-draft: ## Make, check and sign a release and its draft at GitHub, as the release workflow does (VERSION=)
	@VERSION=$(VERSION) hack/release-draft.sh

##@ Cluster and images
.PHONY: cluster
cluster: ## Build the test cluster's program, bin/cluster
	@mkdir -p $(BIN)
	@go build -C test/cluster -o $(CLUSTER) .

.PHONY: cluster-build
cluster-build: cluster ## Build Kubernetes and all that a cluster needs (5 minutes the first time; KUBERNETES=1.34: another version)
	@$(CLUSTER) build

.PHONY: envtest-assets
envtest-assets: cluster ## Build the API server and etcd of the envtest suites
	@$(CLUSTER) build --only kubenode

.PHONY: helm
helm: cluster ## Build the helm programs of the charts' tests, 3 and 4
	@$(CLUSTER) build --only helm,helm4

.PHONY: image
image: ## OCI archives of the programs in dist/, for linux on this architecture, without a container engine
	@go run -C packaging . draft --version v$(VERSION:v%=%) --dist $(CURDIR)/dist --platform linux/$$(go env GOARCH) \
		--steps binaries,images
	@ls -l dist/*_$(VERSION:v%=%)_image.tar

##@ Release
# The caller's VERSION, or none: a release has no default version. RELEASE_FLAGS are those of `build` in packaging/main.go.
DIST ?= dist
.PHONY: release release-check release-key release-verify licenses
release: ## Everything of a release in DIST=dist: VERSION=v0.2.0 KEY=file [PLATFORMS=linux/amd64] (docs/build/releasing.md)
	@go run -C packaging . build --version '$(if $(filter file,$(origin VERSION)),,$(VERSION))' --source $(CURDIR) \
		--dist $(abspath $(DIST)) --key '$(if $(KEY),$(abspath $(KEY)))' --platform '$(PLATFORMS)' $(RELEASE_FLAGS)

release-check: ## A release of the commit for linux/amd64, built twice, verified and tampered with; the agent for macOS and Windows
	@for p in darwin/arm64 windows/amd64; do \
		GOOS=$${p%/*} GOARCH=$${p#*/} go build -o /dev/null ./cmd/fairlead; done
	@go run -C packaging . check --source $(CURDIR)

release-key: ## A key pair for the signatures of releases: KEY=file, and file.pub
	@go run -C packaging . key --key '$(if $(KEY),$(abspath $(KEY)))'

licenses: ## The licences of all modules of the programs, as a table; fails on one that is unknown or not permitted
	@go run -C packaging . licenses --source $(CURDIR)

release-verify: ## Check DIST=dist as a stranger would: PUBLIC_KEY=file.pub [REBUILD=1]
	@go run -C packaging . verify --dist $(abspath $(DIST)) --public-key '$(if $(PUBLIC_KEY),$(abspath $(PUBLIC_KEY)))' \
		--source $(CURDIR) $(if $(REBUILD),--rebuild)

.PHONY: chart
chart: manifests image ## The charts as helm packages and OCI archives in dist/, and the images that they name
	@go run -C packaging . draft --version v$(VERSION:v%=%) --dist $(CURDIR)/dist --platform linux/$$(go env GOARCH) \
		--steps chart

.PHONY: airgap
airgap: ## Images, charts and install.sh for clusters without a network in dist/, as a release has them, for this architecture
	@go run -C packaging . draft --version v$(VERSION:v%=%) --dist $(CURDIR)/dist --platform linux/$$(go env GOARCH) \
		--steps binaries,images,chart,airgap
	@ls -l dist/*_$(VERSION:v%=%)_airgap_*.tar.gz

.PHONY: clean
clean: ## Remove bin/ and dist/
	rm -rf $(BIN) dist

$(TOOLS)/%: tools/go.mod
	@mkdir -p $(TOOLS)
	@echo "building $* (a few minutes the first time)"
	@go build -C tools -o $(TOOLS)/ $$(awk '/^\t[^ ]*\/$*$$/ {print $$1; exit}' tools/go.mod)
	@touch $@
