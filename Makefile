# SPDX-License-Identifier: Apache-2.0

# git, and with it Go's VCS stamping, fails in a checkout that belongs to another
# user. VERSION is stamped instead.
export GOFLAGS := -buildvcs=false
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

GO := tools/go
BIN := bin/niclane bin/niclane-bench

.PHONY: $(BIN) all demo papers simcard-demo test test-k8s-fast test-k8s test-cilium churn-k8s scale-k8s images release virtual sweep matrix matrix-bench inject check bench bench-k8s bench-k8s-memcached record-wire generate lint fuzz soak soak-host soak-agent packages test-packages test-systemd test-ansible vuln docs clean help

all: $(BIN)

# Phony, because Go knows better than make what has changed. Without cgo, the
# command starts a millisecond sooner and runs with any C library.
$(BIN):
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o $@ ./cmd/$(notdir $@)

demo: $(BIN) ## shows on real memcached what a lane gains; writes out/demo
	@tools/packages memcached || echo "no memcached package: niclane's own server is measured instead" >&2
	@bin/niclane bench first-lane --exact --out out/demo

simcard-demo: ## a lane through a simulated card, in a guest with a kernel that has one; root
	@tools/packages ip:iproute2 ethtool unshare:util-linux qemu-system-x86_64:qemu-system-x86
	@$(GO) run ./test/simcard/run -kernels unstable -suites demo -show

papers: $(BIN) ## quick experiments with the papers' systems, compared with the papers' claims; writes out/papers; root, 20 minutes
	@tools/packages memcached redis-server trafficserver varnish hitch nginx:nginx-light setpriv:util-linux
	@bin/niclane bench papers --quick --out out/papers experiments

test: ## all tests that CI runs, without the linters; root
	@tools/packages ip:iproute2 ethtool nft:nftables memcached redis-server bpftool strace util-linux xdp-filter:xdp-tools nginx:nginx-light haproxy runc curl qemu-system-x86_64:qemu-system-x86 systemd-analyze:systemd script:bsdutils promtool:prometheus
	$(GO) vet ./...
	tools/without-autogroup $(GO) test -timeout 20m ./...

test-k8s-fast: ## the Kubernetes module, without a cluster; root
	@tools/packages ip:iproute2 ethtool nft:nftables iptables
	cd k8s && ../tools/go vet ./... && ../tools/without-autogroup ../tools/go test ./...
	cd k8s/dist && ../../tools/go test ./...
	cd k8s/test && ../../tools/go test ./machine

test-k8s: ## pods with lanes on clusters of Kubernetes 1.36 and 1.34 (NICLANE_TEST_K8S=v1.36: only that); root; the first run builds Kubernetes, a quarter of an hour
	@tools/packages ip:iproute2 runc containerd procps memcached
	cd k8s/test && NICLANE_TEST_K8S=$${NICLANE_TEST_K8S:-1} ../../tools/go test -count=1 -v -timeout 90m ./cluster ./scale ./e2e

test-cilium: ## pods with lanes on a node of Cilium; root; the first run builds Cilium, some minutes
	@tools/packages ip:iproute2 runc procps clang-19 llvm-19
	cd k8s/test && NICLANE_TEST_CILIUM=1 ../../tools/go test -count=1 -v -timeout 60m ./e2e -run TestCilium

DURATION ?= 2h
churn-k8s: ## pods, policies and programs of a node come and go for DURATION (2h); nothing may be left; NICLANE_SEED=N repeats a run; root
	@tools/packages ip:iproute2 runc procps
	cd k8s/test && NICLANE_CHURN=$(DURATION) NICLANE_TEST_K8S=v1.36 ../../tools/go test -count=1 -v -timeout 0 ./e2e -run 'TestKubernetes/v1.36/(install|churn)'

scale-k8s: ## 5,000 nodes and a misbehaving API server, against a real API server; the first run builds it
	cd k8s/test && NICLANE_SCALE_NODES=5000 NICLANE_TEST_K8S=1 ../../tools/go test -count=1 -v -timeout 30m ./scale

images: ## the agent's container image, in out/images
	cd k8s/dist && ../../tools/go run ./images -version $(VERSION) ../../out/images

RELEASE ?= $(shell git describe --tags --match 'v[0-9]*' --always --dirty)
release: ## image for amd64 and arm64, chart, SBOM, manifests and checksums, in out/release; REGISTRY=HOST/PATH: also pushes them there
	rm -rf out/release
	cd k8s/dist && ../../tools/go run ./release -version '$(RELEASE)' $(if $(REGISTRY),-registry '$(REGISTRY)') ../../out/release
	$(if $(REGISTRY),cd k8s/dist && ../../tools/go run ./release -push ../../out/release)

soak: ## every long-running process under load for DURATION (2h), with constant garbage collection; results in out/soak; root
	@tools/packages ip:iproute2
	@$(MAKE) --no-print-directory --jobs=2 soak-host soak-agent

soak-host soak-agent: export NICLANE_SOAK = $(DURATION)
soak-host soak-agent: export NICLANE_SOAK_OUT = $(CURDIR)/out/soak
soak-host:
	$(GO) test -count=1 -timeout 0 -v -run Soak ./test/soak
soak-agent:
	cd k8s && ../tools/go test -count=1 -timeout 0 -v -run Soak ./cmd/niclane-agent

virtual: export NICLANE_VIRTUAL = 1
virtual: ## the tests in virtual time: of the guest, by theory, and of each mechanism; the first run builds its kernel, in about six minutes
	@tools/packages ip:iproute2 ethtool sysctl:procps
	@tools/virtual-kernel
	$(GO) test -count=1 -timeout 20m -parallel $$(nproc) ./lab/virtual ./test/virtual
	$(GO) test -count=1 ./cmd/niclane-bench -run 'TestVirtual$$|TestExactPart|TestSimulate|TestSwitchClasses|TestPaperSize'

sweep: $(BIN) ## what lanes do to queueing over noise, buffers, links, lanes and members, in out/sweep/report.html; half an hour, no root
	tools/virtual-kernel
	$(GO) run ./bench/simulate/sweep

matrix: ## the namespace tests on Debian's kernels, in QEMU; root
	@tools/packages ip:iproute2 ethtool nft:nftables unshare:util-linux
	@$(GO) run ./test/matrix

matrix-bench: ## ratios in guests: niclane's classifier to tc's, a share of the link and a quiet link to no lane, and apply on a simulated card to scripts; root
	@tools/packages ip:iproute2 unshare:util-linux memcached
	@$(GO) run ./test/matrix -bench
	@$(GO) run ./test/simcard/run -kernels unstable -suites bench -show

inject: ## errors at every system call of apply, rollback, guardian and watch, on the real kernel; EVERY=N: at every Nth; root, hours
	@tools/packages ip:iproute2 strace
	$(GO) test -count=1 -v -timeout 24h -parallel 6 ./test/inject -args -every $${EVERY:-1}

check: ## the tests that need no privileges
	$(GO) vet ./...
	$(GO) test -short ./lane/config/... ./lane/intent/... ./lane/device/... ./lane/plan/... ./internal/strictyaml/... ./migrate/adqsetup/... ./bench/experiment/... ./bench/stats/... ./bench/result/... ./bench/page/...

packages: ## deb and rpm, in out/packages
	@dist/build out/packages

test-packages: ## builds the packages twice, installs the deb into a fresh Debian, purges it; root, minutes
	@tools/packages debootstrap rpm
	@tools/packages lintian || echo "no lintian: the deb is not checked by it" >&2
	NICLANE_TEST_PACKAGES=1 $(GO) test -count=1 -v -timeout 20m ./dist

test-systemd: ## installs the deb into a Debian with systemd in QEMU, reboots it, and removes lanes; root, minutes
	@tools/packages debootstrap ip:iproute2 unshare:util-linux qemu-system-x86_64:qemu-system-x86 busybox-static kmod xz-utils zstd mkfs.ext4:e2fsprogs
	NICLANE_TEST_SYSTEMD=$${NICLANE_TEST_SYSTEMD:-6.12} $(GO) test -count=1 -v -timeout 30m ./test/systemd

test-ansible: ## the Ansible role rolls lanes out to two hosts over ssh; root, minutes
	@tools/packages debootstrap ansible-playbook:ansible-core ssh:openssh-client ip:iproute2 pgrep:procps nsenter:util-linux
	NICLANE_TEST_ANSIBLE=1 $(GO) test -count=1 -v -timeout 20m -run TestAnsible ./dist

LINT = PATH="$$($(CURDIR)/$(GO) env GOROOT)/bin:$$PATH" $(CURDIR)/$(GO) tool -modfile=$(CURDIR)/tools/lint.mod golangci-lint run
# The documents quote this misspelling as an example.
SPELLED := queus

docs: ## the documents as a site, in out/site; links and spelling are checked
	tools/site codespell --ignore-words-list $(SPELLED) README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs --skip '*.json'
	tools/site mkdocs build --quiet --strict

lint: ## golangci-lint, by .golangci.yml
	$(LINT) ./...
	cd k8s && $(LINT) ./...
	cd k8s/dist && $(LINT) ./...
	cd k8s/test && $(LINT) ./...

# The database is a module, pinned like any other.
VULNDB := golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018

vuln: ## known vulnerabilities in code that niclane calls; GOVULNDB=URL replaces the pinned database
	@db=$${GOVULNDB:-file://$$($(GO) mod download -json $(VULNDB) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/data/osv}; \
	for dir in . k8s; do (cd $$dir && "$(CURDIR)/$(GO)" tool -modfile="$(CURDIR)/tools/go.mod" govulncheck -db "$$db" ./...) || failed=1; done; test -z "$$failed"

bench: ## ratios of niclane to scripts that do the same
	@tools/packages ip:iproute2 ethtool pgrep:procps chrt:util-linux wrk nginx:nginx-light memcached memcslap:libmemcached-tools redis-server redis-benchmark:redis-tools
	$(GO) test -run '^$$' -bench . ./lane/plan
	$(GO) test -run '^$$' -bench . -benchtime 200ms ./internal/kernel/bpf
	$(GO) test -run '^$$' -bench . -benchtime 100x ./cmd/niclane
	$(GO) test -run '^$$' -bench . -benchtime 1x ./poller ./test/listeners ./test/bench/...

bench-k8s: ## the cost of lanes on a Kubernetes node: niclane-cni's calls, a pod among 110, the agent at rest for ten minutes; root
	@tools/packages ip:iproute2 nft:nftables runc procps
	$(GO) test -run '^$$' -bench Members -benchtime 200ms ./internal/kernel/bpf
	cd k8s && ../tools/go test -run '^$$' -bench . -benchtime 100x ./agent/applier ./cmd/niclane-cni
	cd k8s && ../tools/go test -run '^$$' -bench Pod -benchtime 100x ./cmd/niclane-agent
	cd k8s && ../tools/go test -run '^$$' -bench Rest -benchtime 1x ./cmd/niclane-agent
	cd k8s/test && NICLANE_TEST_K8S=1 ../../tools/go test -run '^$$' -bench Kubernetes -benchtime 1x -timeout 60m ./e2e

bench-k8s-memcached: ## the Kubernetes paper's experiment on a cluster of namespaces, in its quick form; result in out/kubernetes-memcached; root
	@tools/packages ip:iproute2 runc procps memcached
	cd k8s/test && NICLANE_TEST_K8S=1 ../../tools/go test -run '^$$' -bench Memcached -benchtime 1x -timeout 30m ./e2e -out ../../../out/kubernetes-memcached

record-wire: ## records what adqsetup sends in test/wire/testdata; then run go test ./test/wire -update, and read the diff
	@tools/packages python3-venv
	test/wire/record

generate: ## recompiles the eBPF programs, and writes the generated documents
	@tools/packages clang llvm libbpf-dev linux-libc-dev
	$(GO) generate ./...

clean: ## removes bin and out
	rm -rf bin out

help: ## prints this list
	@sed -n 's/^\([a-z0-9][a-z0-9-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do printf '%-20s %s\n' "$$name" "$$text"; done
