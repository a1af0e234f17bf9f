#!/usr/bin/env bash
# Runs the fuzz targets of tests/fuzz, each for a while; ends with an error where one finds something.
#
#   scripts/fuzz.sh [SECONDS EACH] [TARGET ..]
#
# Needs cargo-fuzz; installs it where it is not there. No sanitizer: a stable toolchain is enough, and what is looked
# for are panics, hangs and excessive memory.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
SECONDS_EACH="${1:-60}"
shift || true

command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked --quiet

if (($# == 0)); then
    mapfile -t targets < <(sed -n 's/^name = "\(.*\)"$/\1/p' tests/fuzz/Cargo.toml | grep -v '^segue-fuzz$')
else
    targets=("$@")
fi
for target in "${targets[@]}"; do
    echo "== $target"
    log=$(mktemp)
    if ! cargo fuzz run --fuzz-dir tests/fuzz --sanitizer none "$target" -- \
        -max_total_time="$SECONDS_EACH" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        echo "$target found something: see above, and tests/fuzz/artifacts/$target" >&2
        exit 1
    fi
    grep -E 'stat::(number_of_executed_units|new_units_added)' "$log"
    rm "$log"
done
