#!/usr/bin/env bash
# Runs the unit tests of the libraries that have unsafe code under AddressSanitizer. make sanitize calls it.
#
#   scripts/sanitize.sh [CARGO FLAGS]
#
# The toolchain is the stable one: its sanitizers are asked for with RUSTC_BOOTSTRAP. libtorch and MPI are not instrumented, but what they
# allocate is: an access of ours beyond a tensor's memory is found. Leaks are not looked for, as those libraries keep much for ever.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cache.sh
source "$(dirname "${BASH_SOURCE[0]}")/cache.sh"
cd "$SEGUE_ROOT"

PACKAGES=(segue-kernels segue-layers segue-engine segue-language segue-transfo-xl segue-xlnet segue-lstm segue-families segue-collectives segue-cluster segue-dataloader segue-foreign)
target=$(rustc -vV | sed -n 's/^host: //p')
export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Cdebuginfo=line-tables-only" CARGO_INCREMENTAL=0
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 RAYON_NUM_THREADS=2
cargo test --no-fail-fast "${PACKAGES[@]/#/--package=}" --lib --target "$target" --target-dir target/sanitize "$@"
