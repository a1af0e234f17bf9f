# Segue: what a user and CI call. Every target sets the machine up first; that is a no-op once all is there.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Flags for every cargo call of ours, such as --locked.
CARGO_FLAGS ?=

.PHONY: help setup build demo test test-long test-slurm test-dist test-gpu-kit dist gpu-kit soak kills accuracies reverse-copy translation adaptation faults simulate sanitize bench reference book lint clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' \
		| while IFS='|' read -r target text; do printf '  make %-13s %s\n' "$$target" "$$text"; done

setup: ## Install what is missing: system packages, libtorch (into a cache folder that all checkouts share)
	@scripts/setup.sh

build: setup ## Build everything
	cargo build --workspace $(CARGO_FLAGS)

demo: build ## Train a small Transformer-XL with 2 ranks on real text and let it write; TEXT=path for your own text
	@scripts/demo.sh $(if $(TEXT),"$(TEXT)")

# The logic of the kit for cards and the Python module beside the other tests: they start short programs one by one, and leave the cores idle most of their
# time.
test: build ## Run every test: unit, end to end under mpirun, documentation
	scripts/tests/setup_test.sh
	@mkdir -p target; timeout 1800 scripts/tests/gpu_kit_logic_test.py >target/gpu_kit_logic.log 2>&1 & logic=$$!; \
		SEGUE_BIN=$${CARGO_TARGET_DIR:-$$PWD/target}/debug/segue scripts/tests/python_test.py >target/python.log 2>&1 & python=$$!; \
		trap 'kill %1 %2 2>/dev/null || true' EXIT; code=0; \
		scripts/test.sh $(CARGO_FLAGS) || code=$$?; \
		wait "$$logic" || { cat target/gpu_kit_logic.log; code=1; }; \
		wait "$$python" || { cat target/python.log; code=1; }; \
		exit $$code

test-long: ## Run what takes hours, one after the other: servers of batch systems, kills, faults, histories, accuracies, packages
	SEGUE_TESTS=long $(MAKE) test
	$(MAKE) test-slurm
	$(MAKE) kills faults simulate soak
	$(MAKE) reverse-copy translation adaptation accuracies
	$(MAKE) test-dist test-gpu-kit sanitize

test-slurm: setup ## Install Slurm where that can be done, and run batch jobs under it: signals, limits, cancelled, a node lost
	@scripts/test_slurm.sh $(CARGO_FLAGS)

dist: setup ## Build a Python wheel, and an archive for hosts without Python: files in target/dist
	@scripts/dist.sh $(CARGO_FLAGS)

test-dist: dist ## Install what make dist has built into empty environments, and train there with 2 ranks
	@scripts/tests/dist_test.sh

gpu-kit: setup ## Build the kit that tests and times Segue on a host with a GPU: files in target/gpu-kit
	@scripts/gpu_kit.sh $(CARGO_FLAGS)

test-gpu-kit: gpu-kit ## Unpack the kit where MPI, Rust and the network are covered, and run its half without a card
	@scripts/tests/gpu_kit_test.sh

soak: build ## Let runs suffer everything that can happen in weeks, for SEGUE_SOAK_MINUTES (20)
	cargo test --workspace --test soak $(CARGO_FLAGS) -- --ignored --nocapture

kills: build ## Kill one run SEGUE_KILLS (2000) times at random moments, and compare it with one that nothing happened to
	cargo test --workspace --test kills $(CARGO_FLAGS) -- --ignored --nocapture

accuracies: build ## Train each method of Planetoid on Cora and Citeseer with three seeds, and check means and order: minutes
	SEGUE_REQUIRE=$${SEGUE_REQUIRE:+$$SEGUE_REQUIRE,}fixtures cargo test --workspace --test all $(CARGO_FLAGS) -- --ignored --nocapture planetoid::published::three_seeds

reverse-copy: build ## Train an LSTM and a Mogrifier LSTM on reverse copy with three seeds each, and compare them: minutes
	cargo test --workspace --test all $(CARGO_FLAGS) -- --ignored --nocapture reverse_copy::

translation: build ## Train small translators to write strings backwards, and check that nearly all are right: minutes
	cargo test --workspace --test translation $(CARGO_FLAGS) -- --ignored --nocapture

adaptation: build ## Let four recurrent networks adapt to a source whose symbols changed: ten minutes
	cargo test --workspace --test protocols $(CARGO_FLAGS) -- --ignored --nocapture below_two_nats

faults: build ## Let jobs under segue launch suffer every fault at every point: half an hour
	cargo test --workspace --test launch $(CARGO_FLAGS) -- --ignored --nocapture all_faults

simulate: build ## Run SEEDS (10000) histories of a simulated cluster from FROM (0) on; SEED=n tells one
	cargo test --workspace --test simulate $(CARGO_FLAGS) -- --ignored --nocapture many_histories

sanitize: setup ## Run the unit tests of what has unsafe code under AddressSanitizer: a build of its own, then minutes
	@scripts/sanitize.sh $(CARGO_FLAGS)

bench: setup ## Measure the training step and the tokenizer next to the public Python peers
	cargo build --release --package segue $(CARGO_FLAGS)
	scripts/bench.sh

reference: setup ## Write the snapshots of help texts and configurations anew
	scripts/reference.sh $(CARGO_FLAGS)

book: setup ## Build the documents as a book, with the generated reference: target/book/index.html
	@scripts/book.sh $(CARGO_FLAGS)

lint: setup ## Check formatting, clippy, dependencies and the shell scripts
	cargo fmt --check
	cargo clippy --workspace --all-targets $(CARGO_FLAGS) -- -D warnings
	scripts/cargo_deny.sh
	@if command -v shellcheck >/dev/null; then shellcheck -x scripts/*.sh scripts/*/*.sh scripts/gpu/start tests/pbs/fake.sh .ci/run; \
		else echo 'shellcheck is not installed: the shell scripts are not checked'; fi

clean: ## Remove build products and the demo's run (not the shared cache folder)
	cargo clean
	rm -rf runs/demo
