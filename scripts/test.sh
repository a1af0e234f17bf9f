#!/usr/bin/env bash
# Runs the workspace's tests with cargo nextest, or with plain cargo test where that is not installed. `make test` calls it.
#
#   scripts/test.sh [CARGO FLAGS]
#
# TMPDIR is where tests put their files; left alone, memory where the system has 4 GiB to spare there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Runs flush each file that they publish, and tests make thousands: on a disk they wait for it a fourth of their time. Tests write programs
# too, which some systems do not start from memory.
take_memory() {
    local free
    free=$(df --output=avail --block-size=1M /dev/shm 2>/dev/null | tail -n 1) || return 0
    ((free >= 4096)) || return 0
    local folder
    folder=$(mktemp --directory /dev/shm/segue-tests-XXXXXX) || return 0
    # shellcheck disable=SC2064
    trap "rm -rf '$folder'" EXIT
    printf '#!/bin/sh\n' >"$folder/starts" && chmod +x "$folder/starts"
    if "$folder/starts" 2>/dev/null; then export TMPDIR=$folder; fi
}
[[ -n ${TMPDIR:-} ]] || take_memory

# Once for all: nextest starts a process for each test, and each would ask cargo.
cargo build --workspace "$@"
export SEGUE_IS_BUILT=1

# Unit tests: one process for all of a binary, as libtorch takes a fourth of a second to start, and a process for each test would pay that two thousand
# times. All packages are named, for without the end-to-end tests some would be built again with fewer features.
triple=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
code=0
mkdir -p target
log=target/tests.log
env "CARGO_TARGET_${triple}_RUNNER=$PWD/scripts/tests/unit.sh" \
    cargo test --workspace --lib --bins --tests --no-fail-fast --quiet "$@" 2>&1 | tee "$log" || code=$?

if cargo nextest --version >/dev/null 2>&1; then
    # More than there are cores, where these are few: most tests of jobs wait for more than half of their time.
    if (($(nproc --all) < 4)); then export NEXTEST_TEST_THREADS=${NEXTEST_TEST_THREADS:-4}; fi
    cargo nextest run --workspace -E 'package(segue-tests)' "$@" 2>&1 | tee -a "$log" || code=$?
else
    # Tests under mpirun share the cores: one at a time. nextest runs up to four where that is safe (.config/nextest.toml).
    cargo test --package segue-tests "$@" -- --test-threads 1 2>&1 | tee -a "$log" || code=$?
fi
cargo test --workspace --doc --quiet "$@" 2>&1 | tee -a "$log" || code=$?
# Last, as much stands between a test that failed and the end, and of a long output the end is what people see.
if ((code)); then
    printf '\n==== tests that failed\n'
    grep -E -- '( --- FAILED|\.\.\. FAILED)$|^ +(FAIL|TIMEOUT|SIG[A-Z]+|LEAK-FAIL) \[|panicked at|^error: ' "$log" | sort -u | head -n 40 || true
fi
exit "$code"
