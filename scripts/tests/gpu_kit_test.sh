#!/usr/bin/env bash
# What make gpu-kit promises, tried with the files that it made: they work on a host without Rust, MPI or network. That host is this
# one in a namespace of its own, where all of these are covered by empty files and folders.
#
#   scripts/tests/gpu_kit_test.sh [FOLDER]      default: gpu-kit in the target folder; make test-gpu-kit makes it first
#
# torch is that of the public peers (scripts/peers.sh); where that is not installed, a package torch with the libraries of the build takes its place.
# Which it was is said. Where namespaces are not allowed, one line says so, and the exit code is 0.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR/.. source=cache.sh
source "$(dirname "${BASH_SOURCE[0]}")/../cache.sh"

HERE="$SEGUE_ROOT/scripts/tests"
TARGET="${CARGO_TARGET_DIR:-$SEGUE_ROOT/target}"
PROGRAMS=(mpirun mpiexec mpicc orterun cargo rustc rustup)
# shellcheck source-path=SCRIPTDIR source=check.sh
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"

skip() {
    local line="skipped (root): the GPU kit on a host of its own: $*"
    [[ ",${SEGUE_REQUIRE:-}," != *,root,* ]] || fail "SEGUE_REQUIRE asks for root: $*"
    echo "$line"
    [[ -z "${SEGUE_SKIPS:-}" ]] || echo "$line" >>"$SEGUE_SKIPS"
    exit 0
}

# ---- outside

# As root a namespace of mounts is enough; others get one of users with it.
unshare_words() {
    local words=(--mount --net)
    [[ $(id -u) -eq 0 ]] || words+=(--map-root-user)
    printf '%s\n' "${words[@]}"
}

# What is to be covered, a path a line: programs, libraries of MPI, toolchains, and what the build itself uses.
list_covered() {
    local name
    for name in "${PROGRAMS[@]}"; do
        type -ap "$name" || true
    done
    PATH="$PATH:/sbin:/usr/sbin" ldconfig -p | awk '/libmpi|libopen-rte|libopen-pal/ { print $NF }'
    compgen -G '/usr/lib/*/openmpi' || true
    compgen -G '/usr/lib/rust*' || true
    printf '%s\n' /usr/share/openmpi "${CARGO_HOME:-$HOME/.cargo}" "${RUSTUP_HOME:-$HOME/.rustup}" \
        "$(readlink -f "${LIBTORCH:-$SEGUE_ROOT/.deps/libtorch}")" "$TARGET"
}

start_inside() {
    local kit=$1 sandbox words
    mapfile -t words < <(unshare_words)
    unshare "${words[@]}" true 2>/dev/null || skip "unshare ${words[*]} is not allowed"
    sandbox=$(mktemp -d)
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$sandbox'" EXIT
    cp -r "$kit" "$sandbox/kit"
    list_covered | xargs -r -d '\n' readlink -e | sort -u >"$sandbox/covered" || true
    unshare "${words[@]}" "${BASH_SOURCE[0]}" --inside "$sandbox"
}

# ---- inside

# An interpreter with torch, as PYTHON. A package of links takes the place of torch where there is none.
provide_torch() {
    if PYTHON=$("$SEGUE_ROOT/scripts/peers.sh" python base); then
        KIND="the wheel of torch"
    else
        PYTHON=python3 KIND="a stand-in for torch"
        mkdir -p "$SANDBOX/packages/torch/lib"
        echo 'raise ImportError("this torch has libraries alone")' >"$SANDBOX/packages/torch/__init__.py"
        echo "__version__ = '2.11.0'" >"$SANDBOX/packages/torch/version.py"
        mount --bind "$(readlink -f "${LIBTORCH:-$SEGUE_ROOT/.deps/libtorch}")/lib" "$SANDBOX/packages/torch/lib"
        export PYTHONPATH="$SANDBOX/packages"
    fi
    export PYTHON
}

cover() {
    local path
    mkdir "$SANDBOX/nothing" && : >"$SANDBOX/empty"
    while read -r path; do
        if [[ -d "$path" ]]; then
            mount --bind "$SANDBOX/nothing" "$path"
        elif [[ -e "$path" ]]; then
            mount --bind "$SANDBOX/empty" "$path"
        fi
    done <"$SANDBOX/covered"
}

nothing_is_left() {
    local name found
    hash -r
    for name in "${PROGRAMS[@]}"; do
        # The shell names a covered program too, which cannot be executed.
        found=$(type -P "$name") || continue
        [[ ! -x "$found" ]] || return 1
    done
    ! python3 -c 'import ctypes; ctypes.CDLL("libmpi.so.40")' 2>/dev/null
}

start() { "$SANDBOX/kit/start" "$@"; }

# The statuses of gpu-test's cases, a name and a status a line.
statuses() {
    python3 - "$1/gpu-test.json" <<'PYTHON'
import json, sys

for case in json.load(open(sys.argv[1]))["cases"]:
    print(case["name"], case["status"], case["detail"])
PYTHON
}

# Each case passes, or is passed over and says why; others are printed.
none_else() { ! grep -vE '^[^ ]+ (pass |skip .)' "$SANDBOX/statuses"; }

the_half_without_a_card_passes() {
    check "gpu-test --cpu" "$SANDBOX/kit/gpu-test" --cpu --out "$SANDBOX/cpu"
    statuses "$SANDBOX/cpu" >"$SANDBOX/statuses"
    check "the stand-in for MPI" grep -q '^host pass .*no MPI library: one rank' "$SANDBOX/statuses"
    for case in parity-transfo-xl parity-xlnet resume used; do
        check "$case" grep -q "^$case pass " "$SANDBOX/statuses"
    done
    check "two ranks are passed over" grep -q '^two-ranks skip the host has no Open MPI' "$SANDBOX/statuses"
    check "nothing fails" none_else
}

a_rank_of_several_is_refused() {
    local code=0
    env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
        "$SANDBOX/kit/start" segue bench allreduce >"$SANDBOX/said" 2>&1 || code=$?
    cat "$SANDBOX/said"
    ((code == 69)) && grep -q '^segue: error: MPI_.*stand-in for an MPI library' "$SANDBOX/said"
}

without_a_driver_one_line_says_so() {
    start gpu-test --out "$SANDBOX/card" | tee "$SANDBOX/said"
    grep -q '^no card can be used: no NVIDIA driver: ' "$SANDBOX/said" &&
        statuses "$SANDBOX/card" | grep -q '^parity-xlnet skip no NVIDIA driver: '
}

steps_are_timed() {
    start gpu-bench --cpu --quick --out "$SANDBOX/bench" && grep -q '^| tiny-xlnet | Segue | f32 | 4 |' "$SANDBOX/bench/gpu-bench.md"
}

# torch's libraries are the last thing taken from the build, so they come before the covering.
inside() {
    SANDBOX=$1
    unset LD_LIBRARY_PATH PYTHONPATH
    mkdir "$SANDBOX/tmp"
    export OMP_NUM_THREADS=1 TMPDIR="$SANDBOX/tmp"
    provide_torch
    cover
    echo "gpu-kit: on $KIND"
    check "no MPI, no Rust" nothing_is_left
    the_half_without_a_card_passes
    check "a rank of several" a_rank_of_several_is_refused
    [[ -e /dev/nvidiactl ]] || check "no driver" without_a_driver_one_line_says_so
    check "gpu-bench --cpu" steps_are_timed
    ls -A "$TMPDIR" >"$SANDBOX/left" # torch leaves caches of its own there
    check "no unpacked kit is left behind" test -z "$(grep segue "$SANDBOX/left")"
    echo "gpu-kit: $PASSED checks passed"
}

# Its peer is the public model: where its package is, both give the same loss and gradients.
compare_public_model() {
    local python
    if python=$("$SEGUE_ROOT/scripts/peers.sh" python transfoxl); then
        OMP_NUM_THREADS=1 "$python" -W ignore "$HERE/public_transfo_xl_test.py"
    else
        echo "gpu-kit: the public packages are not installed (scripts/peers.sh): their Transformer-XL is not compared"
    fi
}

main() {
    local kit="${1:-$TARGET/gpu-kit}"
    [[ -x "$kit/start" ]] || fail "there is no kit in $kit: make gpu-kit makes it"
    "$HERE/gpu_kit_logic_test.py"
    compare_public_model
    start_inside "$kit"
}

if [[ "${1:-}" == --inside ]]; then
    inside "$2"
else
    main "$@"
fi
