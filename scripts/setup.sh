#!/usr/bin/env bash
# Makes this checkout ready to build: system packages, Rust, libtorch. A no-op of a fraction of a second when all is there.
#
#   scripts/setup.sh        (make setup, and every other make target, calls it)
#
# On Debian and Ubuntu as root, missing system packages are installed; otherwise they are listed and the exit code is 1.
# libtorch is the CPU part of three Python wheels, kept in the cache folder (SEGUE_CACHE, else XDG_CACHE_HOME/segue,
# else ~/.cache/segue) that every checkout shares; .deps/libtorch links to it. A LIBTORCH of your own wins over it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cache.sh
source "$(dirname "${BASH_SOURCE[0]}")/cache.sh"

LIBTORCH_VERSION=2.11.0
LIBTORCH_DIR="$SEGUE_CACHE_DIR/libtorch-$LIBTORCH_VERSION"
STAMP=.segue-stamp
FREE_MEBIBYTES_NEEDED=2048

# requirement, platform tag, SHA-256 of the wheel. The Python tag is fixed, so the local Python's version does not matter.
WHEELS=(
    "torch==2.11.0 manylinux_2_28_x86_64 0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756"
    "nvidia-cuda-runtime==13.0.96 manylinux2014_x86_64 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
    "nvidia-cuda-cupti==13.0.85 manylinux_2_25_x86_64 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8"
)
PYTHON_TAG=(--python-version 3.12 --implementation cp --abi cp312 --abi none)

# ---- the system ----------------------------------------------------------------------------------------------

has() { command -v "$1" >/dev/null 2>&1; }

# The development package's link, with which LLVM's own headers come; the runtime library alone lacks those.
has_libclang() {
    [[ -n "${LIBCLANG_PATH:-}" ]] || compgen -G '/usr/lib/llvm-*/lib/libclang.so' >/dev/null ||
        compgen -G '/usr/lib*/libclang.so' >/dev/null
}

has_mpi_headers() { has mpicc && echo '#include <mpi.h>' | mpicc -x c -E - >/dev/null 2>&1; }

# One line for each thing that is missing: Debian's package, then what it is.
missing_packages() {
    has c++ || echo "g++: a C++ compiler (c++)"
    has make || echo "make: GNU make"
    has mpirun || echo "openmpi-bin: Open MPI 4 (mpirun)"
    has_mpi_headers || echo "libopenmpi-dev: Open MPI's headers and compiler wrapper (mpi.h, mpicc)"
    has_libclang || echo "libclang-dev: libclang, with which the MPI binding is generated"
    has python3 || echo "python3: Python 3, to fetch and unpack libtorch"
    python3 -m pip --version >/dev/null 2>&1 || echo "python3-pip: pip for Python 3, to fetch libtorch"
}

install_packages() {
    local packages=("$@")
    say "installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; } >&2; then
        fail "apt-get could not install: ${packages[*]}"
    fi
}

check_packages() {
    local missing packages
    missing=$(missing_packages)
    [[ -n "$missing" ]] || return 0
    mapfile -t packages < <(cut -d: -f1 <<<"$missing")
    if has apt-get && [[ $(id -u) -eq 0 ]]; then
        install_packages "${packages[@]}"
        missing=$(missing_packages)
        [[ -z "$missing" ]] || fail $'still missing after the installation:\n'"$missing"
        return
    fi
    {
        echo "segue: these are missing:"
        cut -d: -f2- <<<"$missing" | sed 's/^/  -/'
        if has apt-get; then
            echo "Install them, then run this again:  sudo apt-get install ${packages[*]}"
        else
            echo "Install them with your system's package manager, then run this again. (On Debian: ${packages[*]})"
        fi
    } >&2
    exit 1
}

check_machine() {
    [[ "$(uname -s) $(uname -m)" == "Linux x86_64" ]] ||
        fail "Segue builds on Linux on x86-64; this is $(uname -s) on $(uname -m)"
}

# The oldest Rust that builds the workspace stands in Cargo.toml and nowhere else.
check_rust() {
    local wanted found
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$SEGUE_ROOT/Cargo.toml")
    if ! has cargo || ! has rustc; then
        fail "Rust is missing: install Rust $wanted or newer (with rustup)"
    fi
    found=$(cd "$SEGUE_ROOT" && rustc --version | cut -d' ' -f2)
    [[ "$(printf '%s\n' "$wanted" "$found" | sort --version-sort | head -n 1)" == "$wanted" ]] ||
        fail "Rust $wanted or newer is needed, this is $found: run 'rustup update stable'"
}

# ---- libtorch ------------------------------------------------------------------------------------------------

stamp_text() { printf '%s\n' "layout 1" "${WHEELS[@]}"; }

is_whole() { [[ -f "$LIBTORCH_DIR/$STAMP" && "$(cat "$LIBTORCH_DIR/$STAMP")" == "$(stamp_text)" ]]; }

check_space() {
    local free
    free=$(df --output=avail --block-size=1M "$SEGUE_CACHE_DIR" | tail -n 1)
    ((free >= FREE_MEBIBYTES_NEEDED)) ||
        fail "$SEGUE_CACHE_DIR has $free MiB free, libtorch needs $FREE_MEBIBYTES_NEEDED: make room or set SEGUE_CACHE"
}

download() {
    local requirement=$1 platform=$2 into=$3 bar=off
    [[ ! -t 2 ]] || bar=on
    python3 -m pip download --disable-pip-version-check --no-cache-dir --progress-bar "$bar" --quiet \
        --no-deps --only-binary=:all: "${PYTHON_TAG[@]}" --platform "$platform" --dest "$into" "$requirement" >&2
}

# Fetches one wheel into the empty folder INTO. A file whose hash is wrong is deleted and fetched once more.
fetch_wheel() {
    local requirement=$1 platform=$2 sha256=$3 into=$4 attempt found
    for attempt in 1 2; do
        say "fetching $requirement"
        if ! download "$requirement" "$platform" "$into"; then
            say "pip could not download $requirement (attempt $attempt of 2)"
        elif found=$(cat "$into"/*.whl | sha256sum | cut -d' ' -f1) && [[ "$found" == "$sha256" ]]; then
            return 0
        else
            say "the download of $requirement is broken: SHA-256 $found, expected $sha256 (attempt $attempt of 2)"
        fi
        rm -f "$into"/*
    done
    fail "$requirement could not be fetched whole. Check the network and pip's configuration, then run this again"
}

# Unpacks the headers and the six libraries that a CPU build links, and nothing else of the wheels.
unpack() {
    local wheels=$1 into=$2
    python3 - "$wheels" "$into" <<'PYTHON'
import pathlib, shutil, sys, zipfile

wheels, into = map(pathlib.Path, sys.argv[1:])
LIBRARIES = {"libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13"}


def place(name):
    """Where the wheel's member `name` belongs in the layout; None where it is not needed."""
    if name.startswith("torch/include/") and not name.endswith("/"):
        return into / name.removeprefix("torch/")
    folder, _, file = name.rpartition("/")
    if file in LIBRARIES and folder.endswith("/lib"):
        return into / "lib" / file
    return None


for wheel in sorted(wheels.glob("*/*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if (target := place(member)) is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, open(target, "wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)

absent = [name for name in sorted(LIBRARIES) if not (into / "lib" / name).is_file()]
if absent or not (into / "include/torch/csrc/api/include/torch/torch.h").is_file():
    sys.exit(f"segue: error: the libtorch wheels lack {absent or 'their headers'}")
PYTHON
    # The binding links -ltorch, which the CPU wheel's libtorch_cpu.so serves; without libtorch_cuda.so in this
    # folder the binding leaves CUDA out.
    ln -s libtorch_cpu.so "$into/lib/libtorch.so"
}

# Builds the folder beside its final place and renames it: what lies there with a stamp is always whole.
install_libtorch() {
    local index requirement platform sha256
    check_space
    rm -rf "$SEGUE_CACHE_DIR"/.unpacking-libtorch.* # left by set-ups that were killed; the lock says none is running
    work=$(mktemp -d "$SEGUE_CACHE_DIR/.unpacking-libtorch.XXXXXX")
    trap 'rm -rf "$work"' EXIT # `work` is no local: the trap outlives the function
    for index in "${!WHEELS[@]}"; do
        read -r requirement platform sha256 <<<"${WHEELS[$index]}"
        mkdir -p "$work/wheels/$index"
        fetch_wheel "$requirement" "$platform" "$sha256" "$work/wheels/$index"
    done
    mkdir "$work/layout"
    unpack "$work/wheels" "$work/layout"
    stamp_text >"$work/layout/$STAMP"
    [[ ! -e "$LIBTORCH_DIR" ]] || mv "$LIBTORCH_DIR" "$work/replaced"
    mv "$work/layout" "$LIBTORCH_DIR"
    rm -rf "$work"
    trap - EXIT
    say "libtorch $LIBTORCH_VERSION is in $LIBTORCH_DIR"
}

link_libtorch() {
    local link="$SEGUE_ROOT/.deps/libtorch"
    [[ "$(readlink "$link" || true)" != "$LIBTORCH_DIR" ]] || return 0
    mkdir -p "$SEGUE_ROOT/.deps"
    ln -sfn "$LIBTORCH_DIR" "$link"
}

provide_libtorch() {
    if [[ -n "${LIBTORCH:-}" ]]; then
        [[ -e "$LIBTORCH/lib/libtorch.so" ]] || fail "LIBTORCH is $LIBTORCH, which has no lib/libtorch.so: unset it or mend it"
        return
    fi
    if ! is_whole; then
        lock_cache libtorch
        is_whole || install_libtorch
    fi
    link_libtorch
}

main() {
    check_machine
    check_packages
    check_rust
    provide_libtorch
}

[[ "${BASH_SOURCE[0]}" != "$0" ]] || main "$@"
