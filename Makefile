# The two commands that matter: `make demo` and `make test`. Both set up what they need.
#
# CARGO_TARGET_DIR says where everything is built, as for cargo itself.

.DEFAULT_GOAL := help
.PHONY: help setup setup-verbs demo test test-all test-ga test-verbs test-launch test-shmem4py sanitize bench-ga bench-peers lint fuzz soak bench counts docs install install-built deb clean

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
PREFIX ?= /usr/local
DESTDIR ?=
# VERBS=yes makes install build everything with RDMA devices.
VERBS ?= no
DEMO_OUTPUT ?= demo-output
# How long make fuzz goes on with each target, and make soak with all of it.
SECONDS ?= 60
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Which MPI Global Arrays is built with: mpich or openmpi.
ifneq ($(origin MPI),command line)
MPI := mpich
endif

# rustup puts cargo here, and a shell that is not interactive may not know it.
export PATH := $(PATH):$(HOME)/.cargo/bin

help: ## Show this list
	@echo "usage: make TARGET"
	@echo
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)$$/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-13s %s\n", $$1, $$2 }'
	@echo
	@echo "install takes PREFIX (now $(PREFIX)) and DESTDIR, and VERBS=yes for RDMA devices. Everything is built in $(TARGET_DIR) (CARGO_TARGET_DIR)."

setup: ## Install what is missing to build: a C compiler, rustfmt, clippy
	@tools/setup.sh

# What builds the whole workspace builds the verbs netmod, which needs more. Without that no line of it is asked for.
setup-verbs: setup
	@tools/setup.sh verbs

demo: setup ## Run three example programs on real input, on one node and on two
	$(CARGO) build --locked --profile demo -p longarm-launch -p longarm --bin longarm --example pagerank --example matmul --example heat
	tools/demo.sh "$(TARGET_DIR)/demo/longarm" "$(TARGET_DIR)/demo/examples" "$(DEMO_OUTPUT)"

test: setup-verbs ## Check format, lints, docs and rules, then run all tests and models
	@tools/test.sh

test-all: setup-verbs ## Run `make test` and all that is too long for every day, and every command that a page shows: some hours
	@tools/test-all.sh

test-ga: setup ## Build the real Global Arrays on longarm, and run its tests and ARMCI's own (MPI=mpich or openmpi)
	tools/ga/test-ga.sh $(MPI)

test-verbs: setup-verbs ## Run tests and jobs over RDMA devices, in a virtual machine that has some
	@tools/verbs/test.sh

test-launch: setup ## Start jobs on several hosts by ssh and by every process manager there is, and kill them in every way (as root)
	@tools/test-launch.sh

test-shmem4py: setup ## Build the Python package shmem4py on longarm's OpenSHMEM, and run its own tests
	$(MAKE) --no-print-directory install PREFIX="$(abspath $(TARGET_DIR))/installed" DESTDIR=
	tools/shmem4py/test.sh "$(TARGET_DIR)/installed"

sanitize: setup ## Run the tests under the address and thread sanitizers and Miri, as far as the nightly toolchain has them
	@tools/sanitize.sh

bench-ga: setup ## Measure ARMCI's and Global Arrays' perf programs on longarm beside ComEx and ARMCI-MPI
	tools/ga/perf.sh $(MPI)

lint: setup-verbs ## Only the checks of `make test` that run no tests
	@tools/test.sh lint

fuzz: setup ## Feed every place where bytes of others come in with what a fuzzer makes up (SECONDS=60 for each target)
	tools/fuzz.sh $(SECONDS)

# One job of 10,000 simulated ranks takes more than a minute: there are fewer where there is no time for it.
soak: setup ## Simulate jobs with faults and inject faults into real ones, from fresh seeds, for SECONDS
	$(CARGO) run --locked --release -p longarm-sim -- --fresh --faults all --ranks 16 --ops 400 --seconds $$(($(SECONDS) / 8))
	$(CARGO) run --locked --release -p longarm-sim -- --fresh --faults all --ranks 24 --ops 400 --routed --seconds $$(($(SECONDS) / 8))
	$(CARGO) run --locked --release -p longarm-sim -- --fresh --faults all --ranks 1024 --seconds $$(($(SECONDS) / 4))
	$(CARGO) run --locked --release -p longarm-sim -- --fresh --faults all --ranks $$(($(SECONDS) >= 240 ? 10000 : 2500)) --ops 100 --threads 1 --seconds $$(($(SECONDS) / 4))
	$(CARGO) test --locked --release -p longarm-launch --test fault_injection -- --seconds $$(($(SECONDS) / 4))

bench: setup ## Measure longarm beside what the machine allows
	$(CARGO) build --locked --release -p longarm-launch -p longarm-benches --bins
	"$(TARGET_DIR)/release/longarm-bench" all

bench-peers: setup ## Measure longarm beside MPI, OpenSHMEM, ARMCI-MPI, UCX and libfabric, and rewrite the tables of docs/src/peers.md
	benches/peers/all.sh

counts: setup ## Count the instructions of the hot calls by valgrind, and compare them with what they should be
	$(CARGO) build --locked --release -p longarm-benches
	benches/counts/run.sh --check benches/counts/release.txt "$(TARGET_DIR)/release/longarm-bench"

docs: setup-verbs ## Build the interface's pages, and the book where mdbook is installed
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	@echo "interface: $(TARGET_DIR)/doc/longarm/index.html"
	@if command -v mdbook >/dev/null; then \
		mdbook build docs && echo "book: docs/book/index.html"; \
	else \
		echo "book: not built, because mdbook is not installed; its pages can be read as they are in docs/src"; \
	fi

ifeq ($(VERBS),yes)
INSTALL_SETUP := setup-verbs
INSTALL_FEATURES := --features longarm-launch/verbs,longarm-benches/verbs
INSTALL_LIBRARY_FEATURES := --features verbs
endif

# Where `install-built` finds its files. `tools/ga/test-ga.sh --quick` names the folder of what the tests of `make test` are built with.
BUILT = $(TARGET_DIR)/release
# All three C libraries are made from one archive, so that it pays to optimise it as a whole (fat): libarmci.so is 8 % smaller for it. Cargo
# optimises across crates only what is built as nothing but an archive, and takes the profile for fat only with all crates built again.
INSTALL_ARCHIVE = $(BUILT)/liblongarm_both.a
# Without it, as tests are built, the crates hold nothing that could be optimised once more.
INSTALL_LTO = $(if $(filter off false n no,$(CARGO_PROFILE_RELEASE_LTO)),,-- -C lto=fat)

install: setup $(INSTALL_SETUP) ## Install the longarm command with what longarm perf runs, libarmci, OpenSHMEM and liblongarm (ARMCI and OpenSHMEM in one) with headers, under PREFIX, with manual pages, completions and environment modules
	$(CARGO) build --locked --release $(INSTALL_FEATURES) -p longarm-launch -p longarm-benches -p longarm-sim --bin longarm --bin longarm-bench --bin longarm-footprint --bin longarm-scale --example manual
	$(CARGO) rustc --locked --release $(INSTALL_LIBRARY_FEATURES) -p longarm-both --lib --crate-type staticlib $(INSTALL_LTO)
	$(MAKE) --no-print-directory install-built

install-built:
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/include" "$(DESTDIR)$(PREFIX)/lib/pkgconfig"
	install -m 755 "$(BUILT)/longarm" "$(DESTDIR)$(PREFIX)/bin/longarm"
	install -m 755 "$(BUILT)/longarm-bench" "$(DESTDIR)$(PREFIX)/bin/longarm-bench"
	install -m 755 "$(BUILT)/longarm-footprint" "$(DESTDIR)$(PREFIX)/bin/longarm-footprint"
	install -m 755 "$(BUILT)/longarm-scale" "$(DESTDIR)$(PREFIX)/bin/longarm-scale"
	install -m 644 shims/armci/include/*.h "$(DESTDIR)$(PREFIX)/include"
	shims/build-library.sh "$(INSTALL_ARCHIVE)" "$(DESTDIR)$(PREFIX)/lib" libarmci
	sed -e 's|@PREFIX@|$(abspath $(PREFIX))|' -e 's|@VERSION@|$(VERSION)|' shims/armci/armci.pc.in \
		>"$(DESTDIR)$(PREFIX)/lib/pkgconfig/armci.pc"
	shims/build-library.sh "$(INSTALL_ARCHIVE)" "$(DESTDIR)$(PREFIX)/lib" liblongarm
	sed -e 's|@PREFIX@|$(abspath $(PREFIX))|' -e 's|@VERSION@|$(VERSION)|' shims/both/longarm.pc.in \
		>"$(DESTDIR)$(PREFIX)/lib/pkgconfig/longarm.pc"
	shims/shmem/install.sh "$(INSTALL_ARCHIVE)" "$(DESTDIR)$(PREFIX)" "$(abspath $(PREFIX))"
	"$(BUILT)/examples/manual" "$(DESTDIR)$(PREFIX)/share"
	install -d "$(DESTDIR)$(PREFIX)/share/modulefiles/longarm"
	sed -e 's|@PREFIX@|$(abspath $(PREFIX))|' -e 's|@VERSION@|$(VERSION)|' packaging/modules/longarm.tcl.in \
		>"$(DESTDIR)$(PREFIX)/share/modulefiles/longarm/$(VERSION)"
	sed -e 's|@PREFIX@|$(abspath $(PREFIX))|' -e 's|@VERSION@|$(VERSION)|' packaging/modules/longarm.lua.in \
		>"$(DESTDIR)$(PREFIX)/share/modulefiles/longarm/$(VERSION).lua"

deb: setup $(INSTALL_SETUP) ## Make a Debian package of what install installs, in the folder debian of where everything is built
	packaging/debian/build.sh "$(TARGET_DIR)/debian"

clean: ## Remove what was built and what the demo wrote
	$(CARGO) clean
	rm -rf "$(DEMO_OUTPUT)" docs/book
