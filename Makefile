# The two commands that matter: `make demo` and `make test`. Both set up what they need.
#
# CARGO_TARGET_DIR says where everything is built, as for cargo itself.

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench docs install clean

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
PREFIX ?= /usr/local
DESTDIR ?=
DEMO_OUTPUT ?= demo-output

# rustup puts cargo here, and a shell that is not interactive may not know it.
export PATH := $(PATH):$(HOME)/.cargo/bin

help: ## Show this list
	@echo "usage: make TARGET"
	@echo
	@sed -n 's/^\([a-z]*\):.*## \(.*\)$$/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-10s %s\n", $$1, $$2 }'
	@echo
	@echo "install takes PREFIX (now $(PREFIX)) and DESTDIR. Everything is built in $(TARGET_DIR) (CARGO_TARGET_DIR)."

setup: ## Install what is missing to build: a C compiler, rustfmt, clippy
	@tools/setup.sh

demo: setup ## Run three example programs on real input, on one node and on two
	$(CARGO) build --locked --release -p longarm-launch -p longarm --bins --examples
	tools/demo.sh "$(TARGET_DIR)/release/longarm" "$(TARGET_DIR)/release/examples" "$(DEMO_OUTPUT)"

test: setup ## Check format, lints, docs and rules, then run all tests and models
	@tools/test.sh

lint: setup ## Only the checks of `make test` that run no tests
	@tools/test.sh lint

bench: setup ## Measure longarm beside what the machine allows
	$(CARGO) build --locked --release -p longarm-launch -p longarm-benches --bins
	"$(TARGET_DIR)/release/longarm-bench" all

docs: setup ## Build the interface's pages, and the book where mdbook is installed
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	@echo "interface: $(TARGET_DIR)/doc/longarm/index.html"
	@if command -v mdbook >/dev/null; then \
		mdbook build docs && echo "book: docs/book/index.html"; \
	else \
		echo "book: not built, because mdbook is not installed; its pages can be read as they are in docs/src"; \
	fi

install: setup ## Install the longarm command under PREFIX
	$(CARGO) build --locked --release -p longarm-launch --bin longarm
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 "$(TARGET_DIR)/release/longarm" "$(DESTDIR)$(PREFIX)/bin/longarm"

clean: ## Remove what was built and what the demo wrote
	$(CARGO) clean
	rm -rf "$(DEMO_OUTPUT)" docs/book
