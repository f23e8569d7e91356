# `make` lists the targets. Variables: KEEP=1 leaves the demo up.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

CARGO ?= cargo
# The namespace tests need root.
SUDO := $(shell [ "$$(id -u)" -eq 0 ] || echo sudo -E)
RUNNER := $(if $(SUDO),--config 'target."cfg(all())".runner="$(SUDO)"')
LAB := $(SUDO) target/release/tweed-lab

.PHONY: help setup build demo demo-down test bench lint fmt deny clean

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## install what demo and test need, only what is missing
	@conformance/setup.sh

build: ## build the release programs into target/release
	$(CARGO) build --release --workspace

demo: setup build ## three nodes and their pods as namespaces: every path checked (KEEP=1 leaves it up)
	@$(LAB) demo --svg target/demo.svg $(if $(KEEP),--keep)

demo-down: ## take away a demo that was left up
	@if [ -x target/release/tweed-lab ]; then $(LAB) down --all; else echo "no demo here: nothing was built"; fi

lint: ## format and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

test: setup lint ## format, lints, unit, property and namespace tests
	$(CARGO) build --workspace
	$(CARGO) test --workspace --doc
	$(CARGO) test --workspace --no-fail-fast --lib --bins --tests $(RUNNER)
	$(CARGO) test --package tweed-ipam --test reference $(RUNNER) -- --ignored

bench: setup build ## tweed beside its peers and the kernel's floor: tables and plots in target/bench
	@$(SUDO) target/release/tweed-bench

fmt: ## format the code
	$(CARGO) fmt --all

deny: ## licenses, sources and double versions of the dependencies
	@conformance/setup.sh deny
	target/tools/bin/cargo-deny check bans licenses sources

clean: ## remove all that was built
	$(CARGO) clean
