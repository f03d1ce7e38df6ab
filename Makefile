# `make demo` and `make test` are all a newcomer needs; each installs what it lacks.
# One build serves both: they share cargo's dev profile, so nothing is compiled twice.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

CARGO ?= cargo
# Of each launcher that is installed `make test-slow` asks about random plans for so long, up to 100 of them.
LAUNCHER_SECONDS ?= 5
target := $(or $(CARGO_TARGET_DIR),target)

# Settings of the shell that belong to other work: a database that tests must not write to, and
# hints that would send torch-sys to another libtorch than .cargo/config.toml names.
unexport DATABASE_URL DATABASE_URL_FILE
unexport LIBTORCH_INCLUDE LIBTORCH_LIB LIBTORCH_STATIC LIBTORCH_CXX11_ABI LIBTORCH_USE_PYTORCH

# nextest runs tests of different crates side by side and ends those that hang (.config/nextest.toml).
has_nextest := $(CARGO) nextest --version >/dev/null 2>&1

# More: deploy/packages/build.sh builds the packages alone.
test-deploy: setup ## Install the packages in a fresh Debian that boots, and use them there; build the images and run them; as root (5 minutes)
	@tests/deploy/check.sh
	@tests/slurm/root.sh || echo "SKIPPED: slurm::segments: there is no Slurm that knows blocks of nodes"
	$(CARGO) test --workspace --locked --test e2e -- slurm::segments --nocapture

.PHONY: help setup binaries build demo demo-slurm test test-slow test-random slow-1 slow-2 slow-3 slow-4 accuracy accuracy-full bench-search bench-memory bench-chunks bench-idle bench-rpc bench-hostile certificates launchers python test-deploy quality train-memory fmt lint doc book clean

help: ## Show this list
	@echo "Loadmaster plans how to train a neural network on many GPUs."
	@echo
	@echo "  make demo    see it work: profile a model, plan it, and check the plan (no GPU needed)"
	@echo "  make test    everything that must pass before a change is merged"
	@echo
	@echo "All targets:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22
	@echo
	@echo "Set-up fetches libtorch once per user; LOADMASTER_LIBTORCH=/path uses your own instead."

setup: ## Install what the build and the tests need (the other targets do this)
	@deploy/setup/packages.sh build run
	@deploy/setup/libtorch.sh

# What the demo and the end-to-end tests start.
binaries: setup
	$(CARGO) build --workspace --locked

build: setup ## Build optimised binaries into target/release
	$(CARGO) build --release --locked --workspace

demo: binaries ## Start a planner and a worker, and plan a small model with them
	@deploy/demo.sh $(target)/debug

demo-slurm: binaries ## Train a plan as a job of a real Slurm on four nodes of this machine, as root, and read its page (a minute; LOADMASTER_TORCH_PYTHON names a Python with torch, else `make launchers` installs one)
	@deploy/setup/packages.sh slurm || true
	@$(target)/debug/bench slurm

nextest := $(CARGO) nextest run --workspace --locked --no-fail-fast

test: lint binaries ## Run formatting and lint checks, then all but the slow tests
	@if $(has_nextest); then \
		echo "$(nextest)"; $(nextest); \
	else \
		echo "$(CARGO) test --workspace --locked (cargo-nextest is not installed)"; \
		$(CARGO) test --workspace --locked --lib --bins --tests --no-fail-fast; \
	fi
	$(CARGO) test --workspace --locked --doc
	@deploy/python/tests/check.sh --target $(target)/debug
	@tests/api/go.sh --run $(target)/debug
	@tests/deploy/manifests/install.sh || true
	@tests/deploy/manifests/check.sh

# The slow suites in four parts, of which .ci/run takes one for each tree of files. Each has a quarter of the tests that are marked
# slow, and suites that need more programs or more time.
QUARTER ?= 1 2 3 4
test-slow: binaries ## Run the slow suites (a quarter of an hour; QUARTER=1 to 4 runs one of four parts)
	@$(has_nextest) || { echo "make test-slow needs cargo-nextest: cargo install cargo-nextest --locked" >&2; exit 1; }
	@for quarter in $(QUARTER); do echo "make slow-$$quarter"; $(MAKE) slow-$$quarter; done

slow := $(nextest) --run-ignored only --profile slow --partition
slow-1: doc book
	$(slow) hash:1/4
slow-2:
	$(slow) hash:2/4
	@deploy/setup/packages.sh slurm || echo "SKIPPED: slurm::hooks, slurm::jobs, slurm::requests: no plan becomes a job of a real Slurm"
	@deploy/setup/packages.sh browser && tests/e2e/pages/axe.sh >/dev/null || echo "SKIPPED: pages::browser: no browser looks at the pages, or nobody judges who can read them"
	@deploy/setup/packages.sh shells || echo "SKIPPED: completion::shells: nobody presses Tab in zsh or fish"
	$(nextest) -E 'binary(e2e) and test(/^(slurm|pages::browser|completion::shells)/)'
slow-3:
	$(slow) hash:3/4
	@tests/launchers/ask.sh --random 100 --seconds $(LAUNCHER_SECONDS) --target $(target)/debug
slow-4:
	$(slow) hash:4/4
	PROPTEST_CASES=$${PROPTEST_CASES:-1000} $(nextest) --profile slow -E 'package(loadmaster-proto) + package(loadmaster-simulate)'

planning := package(/^loadmaster-(memory|predict|recommend|search|simulate)$$/)
# Many more of what `make test` draws.
test-random: binaries ## Run the tests that draw their cases with many more of them (hours)
	PROPTEST_CASES=$${PROPTEST_CASES:-1000} RANDOM_ACTIONS=$${RANDOM_ACTIONS:-100} $(CARGO) nextest run --workspace --locked \
		--profile slow -E '$(planning) + package(loadmaster-proto) + package(loadmaster-rank)'

# Both keep what they measured in $(target)/accuracy. More: $(target)/debug/bench accuracy --help
accuracy: binaries ## Compare predictions with measured stages: a sample (10 to 15 minutes)
	@$(target)/debug/bench accuracy

accuracy-full: binaries ## Compare predictions with measured stages: all of them (hours)
	@$(target)/debug/bench accuracy --full

launchers: setup ## Hand exported plans to the launchers' own code: golden ones, 1,000 random ones each (hours; installs 6.6 GB once)
	tests/launchers/install.sh
	tests/launchers/manifests/install.sh
	$(CARGO) build --locked -p loadmaster-tests --bin bench
	tests/launchers/ask.sh --random 1000 --target $(target)/debug

# Frameworks are those of `make launchers`, where that was run.
python: binaries ## Test the Python package: all of it, then under every Python and protobuf that it is for (15 minutes)
	@deploy/python/tests/check.sh --slow --target $(target)/debug
	@deploy/python/tests/matrix.sh --target $(target)/debug

# Only the planner's own crates are built optimised. More: $(target)/release/bench search --help
bench-search: setup ## Compare the searches with brute force and published programs: time and value
	$(CARGO) build --release --locked -p loadmaster-tests --bin bench
	@$(target)/release/bench search

# Only the planner's own crates are built optimised. More: $(target)/release/bench memory --help
bench-memory: setup ## Predict the tables and figures of MPress, each beside the published one (a minute)
	$(CARGO) build --release --locked -p loadmaster-tests --bin bench
	@$(target)/release/bench memory

# The optimizer's step on the host is compared with that of tensors and a copy of memory. More: $(target)/debug/bench chunks --help
bench-chunks: binaries ## Train models larger than their device by every rule: the largest, and seconds side by side (5 minutes)
	@$(target)/debug/bench chunks
	$(CARGO) bench --locked -p loadmaster-rank --bench host-step

# Planner and workers on this machine; more: $(target)/release/bench idle --help
bench-idle: setup ## Connect 500 idle workers to a planner: what it and its database compute meanwhile (half a minute)
	$(CARGO) build --release --locked -p loadmaster -p loadmaster-tests --bin loadmaster --bin bench
	@$(target)/release/bench idle

# Calls from stored profiles, beside an empty call. More: $(target)/release/bench rpc --help
bench-rpc: setup ## Measure planning calls: latency, calls a second, every objective (a few minutes)
	$(CARGO) build --release --locked -p loadmaster -p loadmaster-tests --bin loadmaster --bin bench
	@$(target)/release/bench rpc

# The tests that attack a planner, against an optimised one: they fail where others are not served, and print for how
# long these waited.
hostile := $(addprefix hostile::,answers calls connections lists pages searches workers)
bench-hostile: setup ## Attack a planner in many ways, and measure how long others wait meanwhile (a few minutes)
	$(CARGO) build --release --locked -p loadmaster -p loadmaster-tests --bin loadmaster
	@$(CARGO) test --release --locked -p loadmaster -p loadmaster-tests --test e2e -- $(hostile) --test-threads 1 --nocapture \
		2>&1 | grep --line-buffered -E ' at most|^error|panicked|FAILED|^test result'

# Keeps the instances that failed in $(target)/certificates. More: $(target)/release/bench certificates --help
certificates: setup ## Hold the planner's answers to every plan there is, on 20,000 small problems (some minutes)
	$(CARGO) build --release --locked -p loadmaster -p loadmaster-tests --bin loadmaster --bin bench
	@$(target)/release/bench certificates --strict

# Keeps what it measured in $(target)/quality. More: $(target)/debug/bench quality --help
quality: binaries ## Train the plans of all searches and well-known rules, and compare them (20 to 40 minutes)
	@$(target)/debug/bench quality

# Keeps what it measured in $(target)/train-memory. More: $(target)/debug/bench train --help
train-memory: binaries ## Train with memory actions: the largest models, and seconds side by side (half an hour)
	@$(target)/debug/bench train

fmt: ## Format the code
	$(CARGO) fmt --all

# Where clippy-driver is the compiler, as in .ci/run, the build itself lints all that it compiles.
lint: setup ## Check formatting, clippy, the shell scripts, prose, links and the API
	$(CARGO) fmt --all -- --check
	$(CARGO) build --locked -q --workspace --bin loadmaster-lint
	$(target)/debug/loadmaster-lint
	@if command -v shellcheck >/dev/null; then \
		echo "shellcheck …"; shellcheck .ci/run deploy/*.sh deploy/guide/*.sh deploy/setup/*.sh deploy/python/*/*.sh tests/api/*.sh tests/deploy/manifests/*.sh tests/slurm/*.sh; \
	fi
	@tests/api/buf.sh
	@if [ "$${RUSTC_WORKSPACE_WRAPPER:-}" != clippy-driver ]; then \
		echo "$(CARGO) clippy --workspace --all-targets --locked -- -D warnings"; \
		$(CARGO) clippy --workspace --all-targets --locked -- -D warnings; \
	fi

doc: setup ## Build the API documentation into target/doc
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --locked --no-deps --document-private-items

# Beside the guide it has a reference of every command and of every message, from the programs.
book: binaries ## Build the guide as web pages in target/book/html, with mdBook
	@deploy/guide/book.sh $(target)/debug $(target)/book

clean: ## Remove build outputs (the libtorch of this user stays)
	$(CARGO) clean
