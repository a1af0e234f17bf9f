#!/usr/bin/env bash
# Writes what is kept under tests/snapshots/ anew: the help texts and the configurations of the recipes. `make reference`
# calls it; look at the difference and commit it.
#
#   scripts/reference.sh [--errors] [CARGO FLAGS]
#
# With --errors also the messages of errors, which takes the whole test suite; those that need a small disk of their
# own are only made as root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export SEGUE_SNAPSHOTS=write

errors=false
if [[ "${1:-}" == --errors ]]; then
    errors=true
    shift
fi
# The whole workspace, of which cargo then needs no second build.
cargo test --workspace --bin segue --test snapshots "$@" -- reference:: every_recipe
if $errors; then
    rm -rf tests/snapshots/errors
    scripts/test.sh "$@"
fi
git --no-pager diff --stat -- tests/snapshots
