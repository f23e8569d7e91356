# `make` lists the targets. Variables: KEEP=1 leaves the demo, or the cluster of the
# end-to-end tests, up; ONLY=NAME runs one of those tests, or one kernel of `kernels`, whose
# JOB=demo, or JOB="overlay cni", is a part of it; BEFORE=DIR is for `bench`; SECONDS=N is for
# `chaos` and `fuzz`, SEED=N for `chaos` and `repairs`, ROUNDS=N for `repairs` and `flaky`,
# TARGETS="NAME…" for `fuzz`; ARCH=arm64 is for `build`, `image` and `kernels`, and `image`
# takes ARCH="amd64 arm64" too. VERSION, OUT, IMAGE and SIGN_KEY are for `release`; CHECK=1 is
# for `fast-path-object`.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Each step uses all processors by itself, and later ones need earlier ones.
.NOTPARALLEL:

CARGO ?= cargo
# Also for cargo and the scripts that recipes start: all use the same folder.
export CARGO_TARGET_DIR := $(shell .cargo/target-folder)
# The namespace tests need root.
SUDO := $(shell [ "$$(id -u)" -eq 0 ] || echo sudo -E)
RUNNER := $(if $(SUDO),--config 'target."cfg(all())".runner="$(SUDO)"')
LAB = $(SUDO) $(CARGO_TARGET_DIR)/release/tweed-lab
# The demo runs programs of a profile that compiles in less time than the release.
DEMO = $(SUDO) $(CARGO_TARGET_DIR)/demo/tweed-lab
E2E = $(SUDO) $(CARGO_TARGET_DIR)/release/tweed-e2e $(if $(KEEP),--keep) $(if $(ONLY),--only $(ONLY))
# SECONDS, or else this default. A shell counts in a variable of that name and may export
# it, so only the command line counts.
seconds = $(if $(filter command line,$(origin SECONDS)),$(SECONDS),$(1))
# Builds of kernels export a variable ARCH, with other names of the processors: here too only
# the command line counts, and no program that is started gets it unasked.
arch := $(if $(filter command line,$(origin ARCH)),$(ARCH))
unexport ARCH
# Some targets take one processor only. They say so before anything is built.
for_one := $(filter kernels test-arch,$(MAKECMDGOALS))
$(if $(word 2,$(arch)),$(if $(for_one),$(error make $(for_one) takes one processor at a time, not ARCH='$(arch)')))

# The programs of one processor: those of the image, and the lab that tries them there. All
# others run only on this machine.
own_arch := $(shell dpkg --print-architecture 2>/dev/null)
shown := tweed-agent tweed-ctl tweed-cni-plugin tweed-ipam tweed-lab-kubernetes
shipped := tweed-agent tweed-ctl tweed-cni-plugin tweed-install tweed-ipam tweed-lab-kubernetes
# What reads and writes bytes of others: netlink, nftables, protobuf, JSON.
bytewise := tweed-core tweed-cni tweed-planner tweed-netlink tweed-nft tweed-diagnosis tweed-watch tweed-ipam
release_of = $(if $(filter $(own_arch),$(1)),$(CARGO) build --release,conformance/setup.sh cross $(1) && .cargo/cargo-for $(1) build --release $(addprefix --package ,$(shipped)))

.PHONY: help setup setup-e2e build build-demo demo demo-policy demo-down image release manifests cluster cluster-down test flaky e2e e2e-full e2e-versions e2e-release kernels test-arch fast-path-object chaos repairs bench fuzz fuzz-minimise lint count fmt deny clean

help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: ## install what is missing for test and the lab
	@conformance/setup.sh

setup-e2e: ## install what is missing for cluster and e2e: the first time it builds Kubernetes
	@conformance/setup.sh e2e

build: ## build the release programs into target/release (ARCH=arm64: for another processor)
	$(if $(arch),@$(foreach one,$(arch),$(call release_of,$(one)) &&) true,$(CARGO) build --release)

build-demo:
	@conformance/setup.sh demo
	$(CARGO) build --profile demo $(addprefix --package ,$(shown))

demo: build-demo ## three nodes and their pods as namespaces: every path checked (KEEP=1 keeps it)
	@conformance/once-more.sh demo $(DEMO) demo --svg $(CARGO_TARGET_DIR)/demo.svg $(if $(KEEP),--keep)

demo-policy: build-demo ## who reaches whom on three nodes before and after NetworkPolicies, and why
	@$(DEMO) policy

demo-down: ## remove a demo that was kept, and what else a lab left behind
	@for profile in demo release debug; do \
		lab=$(CARGO_TARGET_DIR)/$$profile/tweed-lab; \
		if [ -x $$lab ]; then exec $(SUDO) $$lab down --all; fi; \
	done; \
	echo "there is no demo: nothing was built"

image: build ## the container image, as target/tweed-image.tar (ARCH='amd64 arm64': one for both)
	@conformance/setup.sh image $(arch)
	@$(SUDO) install/image/build.sh $(arch)

# The programs of all processors are built first. Packing them is a step of its own, which can
# be repeated: install/release.sh.
release_archs := $(or $(arch),amd64 arm64)
release_folder = $(or $(OUT),$(CARGO_TARGET_DIR)/release-$(VERSION))
of_release = OUT='$(OUT)' IMAGE='$(IMAGE)' SIGN_KEY='$(SIGN_KEY)'
release: ## all files of a release in target/release-VERSION (VERSION=0.1.0, OUT=DIR, IMAGE=NAME, SIGN_KEY=FILE, ARCH='amd64 arm64')
	$(if $(VERSION),,$(error make release needs VERSION=, that of Cargo.toml))
	@conformance/setup.sh release $(release_archs)
	@$(of_release) install/release.sh --preflight '$(VERSION)'
	@$(foreach one,$(release_archs),$(call release_of,$(one)) &&) true
	@$(of_release) install/release.sh '$(VERSION)' $(release_archs)

# With `--workspace` even for a single test: with one package alone, cargo would compile
# dependencies again with the features of that package.
manifests: ## write install/tweed.yaml from the kustomize base
	TWEED_UPDATE_DOCS=1 $(CARGO) test --workspace --test manifests

cluster: setup-e2e image ## a real Kubernetes in namespaces on this machine, with tweed; it stays up
	@$(LAB) cluster up

cluster-down: ## remove that cluster
	@if [ -x $(CARGO_TARGET_DIR)/release/tweed-lab ]; then $(LAB) cluster down; else echo "there is no cluster: nothing was built"; fi

lint: ## format, structure of modules, documents, lints
	$(CARGO) fmt --all --check
	@.ci/sources structure
	@.ci/documents
	$(CARGO) clippy --workspace --all-targets -- -D warnings

test: setup lint ## format, lints, unit, property and namespace tests
	@conformance/setup.sh test
	$(CARGO) build --workspace --all-targets
	@conformance/test.sh $(RUNNER)

flaky: setup ## hunt flaky tests: the suite on starved processors beside a build (ROUNDS=1)
	@conformance/setup.sh test
	$(CARGO) build --workspace --all-targets
	@conformance/hunt-flaky.sh $(or $(ROUNDS),1) $(RUNNER)

e2e: setup-e2e image ## end-to-end tests in a real Kubernetes (KEEP=1, ONLY=NAME)
	$(CARGO) test --workspace --test manifests $(RUNNER) -- --ignored
	@conformance/setup.sh previous
	@$(E2E)

e2e-full: setup-e2e image ## the same at full size: 100 pods a node, two minutes without the API server, other versions of Kubernetes
	$(CARGO) test --workspace --test kubernetes $(RUNNER) -- --ignored
	@conformance/setup.sh previous
	@conformance/setup.sh policy-suite
	@$(E2E) --full
	@$(if $(ONLY)$(KEEP),true,$(MAKE) --no-print-directory e2e-versions)

# The lab and the tests are those of this build. All of tweed comes from the folder.
e2e-release: setup-e2e build ## install, paths and rights from the files of a release alone (VERSION=0.1.0, OUT=DIR)
	$(if $(VERSION)$(OUT),,$(error make e2e-release needs VERSION=, or OUT= where make release had it))
	@cd '$(release_folder)' && sha256sum --check --quiet SHA256SUMS
	@$(SUDO) $(CARGO_TARGET_DIR)/release/tweed-e2e --release '$(release_folder)' --only install --only paths --only rights \
		--out $(CARGO_TARGET_DIR)/e2e/release

# Every version runs, also after one that fails.
e2e-versions: setup-e2e image ## install, paths and rights on the other versions of Kubernetes
	@conformance/setup.sh kubernetes-versions
	@failed=; for version in $(notdir $(patsubst %/,%,$(wildcard conformance/kubernetes/other-versions/*/))); do \
		$(SUDO) $(CARGO_TARGET_DIR)/release/tweed-e2e --kubernetes $$version --only install --only paths --only rights \
			--out $(CARGO_TARGET_DIR)/e2e/$$version || failed="$$failed $$version"; \
	done; [ -z "$$failed" ] || { echo "failed on Kubernetes$$failed" >&2; exit 1; }

kernels: build ## the demo and the suites on Linux 5.10, 6.1, 6.12 and the newest under QEMU (ONLY=5.10, JOB=demo, ARCH=arm64)
	@conformance/setup.sh kernels '$(arch)'
	@ARCH='$(arch)' conformance/kernels/run.sh '$(or $(JOB),all)' $(ONLY)

# Three tests are left out: one asks this machine's kernel for its links, in a request that the
# emulator does not translate, one opens a socket of nf_tables, which the emulator has not, and
# one starts itself as another process, which it cannot outside of the emulator.
test-arch: ## unit tests of what reads and writes bytes on an emulated processor (ARCH=s390x, which is big-endian; arm64)
	@conformance/setup.sh cross '$(or $(arch),s390x)'
	.cargo/cargo-for '$(or $(arch),s390x)' test --lib $(addprefix --package ,$(bytewise)) -- \
		--skip answers_that_do_not_fit --skip idle::tests --skip a_server_that_is_not_verified

# The object is committed: neither a build nor a test needs clang.
fast-path-object: ## rebuild the programs of the fast path (CHECK=1: only compare with what is committed)
	@conformance/setup.sh fast-path
	@fastpath/build-object.sh $(if $(CHECK),--check)

bench: setup build ## tweed beside its peers: tables in target/bench (BEFORE=DIR: the release programs of another build)
	@conformance/setup.sh bench
	$(CARGO) build --release --package tweed-bench
	@$(SUDO) $(CARGO_TARGET_DIR)/release/tweed-bench $(if $(BEFORE),--before $(BEFORE))

fuzz: ## cargo-fuzz: each target for SECONDS=60 (TARGETS='NAME…': only these)
	@conformance/setup.sh fuzz
	@fuzz/run.sh run $(call seconds,60) $(TARGETS)

fuzz-minimise: ## take what `make fuzz` has found into the corpora, as few and small as possible
	@conformance/setup.sh fuzz
	@fuzz/run.sh minimise $(TARGETS)

chaos: setup build ## random faults in a small cluster, whole again after each burst (SECONDS=600, SEED=N)
	$(CARGO) build --release --package tweed-chaos
	@$(SUDO) $(CARGO_TARGET_DIR)/release/tweed-chaos --verbose --seconds $(call seconds,600) $(if $(SEED),--seed $(SEED))

repairs: setup build ## how long each kind of damage lasts; fails where one lasts longer than promised (ROUNDS=1, SEED=N)
	$(CARGO) build --release --package tweed-chaos
	@$(SUDO) $(CARGO_TARGET_DIR)/release/tweed-chaos --verbose --repairs $(or $(ROUNDS),1) $(if $(SEED),--seed $(SEED))

count: ## lines of code of each crate, without blank lines and comments: product, tests, the rest
	@.ci/sources count

fmt: ## format the code
	$(CARGO) fmt --all

deny: ## licenses, sources and double versions of the dependencies
	@conformance/setup.sh deny
	$(CARGO_TARGET_DIR)/tools/bin/cargo-deny check bans licenses sources

clean: ## remove everything that was built
	$(CARGO) clean
