#!/usr/bin/env bash
# What scripts/setup.sh promises, tried with three tiny wheels and a pip that is a copy command: no network.
set -euo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SANDBOX=$(mktemp -d)
trap 'rm -rf "$SANDBOX"' EXIT
unset LIBTORCH
export SEGUE_CACHE="$SANDBOX/cache"
PASSED=0

make_wheels() {
    python3 - "$SANDBOX" <<'PYTHON'
import pathlib, sys, zipfile

wheels = {
    "torch-1": ["torch/include/torch/csrc/api/include/torch/torch.h", "torch/lib/libtorch_cpu.so",
                "torch/lib/libc10.so", "torch/lib/libgomp.so.1", "torch/lib/libtorch_cuda.so", "torch/nn/__init__.py"],
    "runtime-1": ["nvidia/cu13/lib/libcudart.so.13"],
    "cupti-1": ["nvidia/cu13/lib/libcupti.so.13"],
}
for name, members in wheels.items():
    with zipfile.ZipFile(pathlib.Path(sys.argv[1]) / f"{name}.whl", "w") as archive:
        for member in members:
            archive.writestr(member, member)
PYTHON
}

# setup.sh with the tiny wheels in place of the real ones. $SANDBOX/fetched counts downloads; the first
# $SANDBOX/broken of them arrive with a byte too many.
load_setup() {
    # shellcheck source-path=SCRIPTDIR/.. source=setup.sh
    source "$HERE/../setup.sh"
    # shellcheck disable=SC2034 # setup.sh reads them
    {
        SEGUE_ROOT="$SANDBOX/checkout"
        FREE_MEBIBYTES_NEEDED=1
        WHEELS=()
    }
    local name
    for name in torch runtime cupti; do
        WHEELS+=("$name-1 any $(sha256sum <"$SANDBOX/$name-1.whl" | cut -d' ' -f1)")
    done
    download() {
        cp "$SANDBOX/$1.whl" "$3/"
        echo "$1" >>"$SANDBOX/fetched"
        if (($(wc -l <"$SANDBOX/fetched") <= $(cat "$SANDBOX/broken"))); then echo >>"$3/$1.whl"; fi
    }
}

reset() {
    rm -rf "$SANDBOX/cache" "$SANDBOX/checkout" "$SANDBOX/fetched"
    mkdir -p "$SANDBOX/checkout"
    touch "$SANDBOX/fetched"
    echo "$1" >"$SANDBOX/broken"
}

provide() { (load_setup && provide_libtorch) >>"$SANDBOX/log" 2>&1; }
fetched() { wc -l <"$SANDBOX/fetched"; }

# The one place that judges: `check NAME COMMAND...` passes where the command succeeds.
check() {
    local name=$1
    shift
    if "$@"; then
        PASSED=$((PASSED + 1))
    else
        printf 'FAILED: %s\n' "$name" >&2
        cat "$SANDBOX/log" >&2
        exit 1
    fi
}

layout_is_right() {
    local lib="$SANDBOX/checkout/.deps/libtorch/lib"
    [[ "$(cd "$lib" && echo *)" == "libc10.so libcudart.so.13 libcupti.so.13 libgomp.so.1 libtorch.so libtorch_cpu.so" ]] &&
        [[ "$(readlink "$lib/libtorch.so")" == libtorch_cpu.so ]] && [[ -z "$(find "$SANDBOX/cache" -name '*.whl')" ]]
}

no_folder_in_the_cache() { [[ -z "$(find "$SANDBOX/cache" -mindepth 1 -type d)" ]]; }

a_second_run_and_a_second_clone_fetch_nothing() {
    reset 0
    check "first run" provide
    check "layout" layout_is_right
    check "three downloads" test "$(fetched)" -eq 3
    check "second run" provide
    rm -rf "$SANDBOX/checkout"
    check "second clone" provide
    check "second clone's layout" layout_is_right
    check "nothing more was fetched" test "$(fetched)" -eq 3
}

a_broken_download_is_fetched_once_more() {
    reset 1
    check "set-up after one broken download" provide
    check "layout" layout_is_right
    check "four downloads" test "$(fetched)" -eq 4
}

a_download_broken_twice_is_refused_and_leaves_nothing() {
    reset 9
    check "refused" eval '! provide'
    check "two downloads" test "$(fetched)" -eq 2
    check "the message names the hash" grep -q 'broken: SHA-256 .* expected' "$SANDBOX/log"
    check "no libtorch" no_folder_in_the_cache
    echo 0 >"$SANDBOX/broken"
    check "the next run succeeds" provide
}

a_folder_without_stamp_is_replaced() {
    reset 0
    mkdir -p "$SANDBOX/cache/libtorch-2.11.0/lib"
    echo half >"$SANDBOX/cache/libtorch-2.11.0/lib/libtorch_cuda.so"
    check "set-up over a half-made folder" provide
    check "layout" layout_is_right
}

concurrent_set_ups_fetch_once() {
    reset 0
    local first
    provide &
    first=$!
    check "one of two" provide
    check "the other of two" wait "$first"
    check "three downloads for both" test "$(fetched)" -eq 3
    check "layout" layout_is_right
}

missing_packages_are_listed_to_those_who_cannot_install() {
    (
        load_setup
        has_mpi_headers() { false; }
        id() { echo 1000; }
        has() { [[ "$1" != apt-get || -n "${DEBIAN:-}" ]] && command -v "$1" >/dev/null; }
        DEBIAN=${1:-} check_packages
    ) >"$SANDBOX/log" 2>&1
}

lists_what_is_missing() {
    check "exit code on Debian" eval '! missing_packages_are_listed_to_those_who_cannot_install yes'
    check "the command to run" grep -q 'sudo apt-get install.*libopenmpi-dev' "$SANDBOX/log"
    check "exit code elsewhere" eval '! missing_packages_are_listed_to_those_who_cannot_install'
    check "what to install elsewhere" grep -q "headers and compiler wrapper (mpi.h, mpicc)" "$SANDBOX/log"
}

make_wheels
a_second_run_and_a_second_clone_fetch_nothing
a_broken_download_is_fetched_once_more
a_download_broken_twice_is_refused_and_leaves_nothing
a_folder_without_stamp_is_replaced
concurrent_set_ups_fetch_once
lists_what_is_missing
echo "set-up: $PASSED checks passed"
