#!/usr/bin/env bash
# Runs the workspace's tests with cargo nextest, or with plain cargo test where that is not installed. `make test` calls it.
#
#   scripts/test.sh [CARGO FLAGS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --workspace "$@"
else
    # Tests under mpirun share the cores: one at a time, as .config/nextest.toml has it.
    cargo test --workspace --exclude segue-tests --lib --bins --tests "$@"
    cargo test --package segue-tests "$@" -- --test-threads 1
fi
cargo test --workspace --doc "$@"
