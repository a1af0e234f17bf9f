#!/usr/bin/env bash
# Builds the kit for hosts with a GPU: one archive with the release binary, what it needs beside torch, cases and programs that test
# and time it there. make gpu-kit calls it; the files lie in gpu-kit/ of the target folder.
#
#   scripts/gpu_kit.sh [CARGO FLAGS]
#
# The host needs an NVIDIA driver and a Python with torch, and nothing else: no Rust, no MPI, no network. Reference numbers beside the
# checkout (../shared/fixtures) and the files of the public Transformer-XL (scripts/peers.sh) go along where they are; what is missing is said.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=dist.sh
source "$(dirname "${BASH_SOURCE[0]}")/dist.sh"

KIT="$TARGET/gpu-kit"
NAME=segue-gpu-kit
STAGE="$KIT/$NAME"
PARTS="$SEGUE_ROOT/scripts/gpu"
FIXTURES="$SEGUE_ROOT/../shared/fixtures"
MOST_BYTES=60000000
VOCABULARY=2048

# The MPI library that the binary was linked with.
mpi_library() {
    LD_TRACE_LOADED_OBJECTS=1 LD_LIBRARY_PATH="$LIBTORCH_LIBRARIES" "$STAGE/libexec/segue" |
        sed -n 's/^\s*libmpi\.so\S* => \(\/\S*\).*/\1/p'
}

# A stand-in under the name of the MPI library: the loader asks for one even where a rank is alone.
add_stub() {
    local library source="$KIT/stub.c"
    library=$(mpi_library)
    [[ -n "$library" ]] || fail "the loader finds no libmpi for $STAGE/libexec/segue"
    mkdir -p "$STAGE/stub"
    "$PARTS/pack/mpi_stub.py" "$STAGE/libexec/segue" "$library" >"$source"
    cc -shared -fPIC -O1 -s -Wl,-soname,"$(basename "$library")" -o "$STAGE/stub/$(basename "$library")" "$source"
    rm "$source"
    run_packed --version >/dev/null || fail "the binary does not start with the stand-in for MPI"
}

# The packed binary as it starts on a host without MPI.
run_packed() { LD_LIBRARY_PATH="$LIBTORCH_LIBRARIES:$STAGE/stub" "$STAGE/libexec/segue" "$@"; }

# The tests of trainer/families/tests/device as a program.
add_device_tests() {
    local program
    if [[ ! -e "$SEGUE_ROOT/trainer/families/tests/device" ]]; then
        say "there are no device tests yet (trainer/families/tests/device): the kit goes without them"
        return
    fi
    say "building the device tests"
    program=$(cargo test --release --no-run --message-format json --package segue-families --test device "$@" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    [[ -x "$program" ]] || fail "cargo names no program for the device tests"
    mkdir -p "$STAGE/bin"
    install -m 755 "$program" "$STAGE/bin/device"
    strip "$STAGE/bin/device"
}

add_cases() {
    local name
    mkdir -p "$STAGE/cases"
    for name in transfo-xl xlnet; do
        cp -r "$SEGUE_ROOT/tests/fixtures/parity/$name" "$STAGE/cases/parity-$name"
    done
    for name in transfoxl_tiny xlnet_tiny; do
        if [[ -d "$FIXTURES/$name" ]]; then
            cp -r --no-preserve=mode "$FIXTURES/$name" "$STAGE/cases/$name"
        else
            say "there are no reference numbers at $FIXTURES/$name: the kit goes without them"
        fi
    done
}

add_corpus() {
    run_packed data build --preset documents --train "$SEGUE_ROOT"/docs/book/src/*/*.md "$SEGUE_ROOT"/benchmarks/*.md --split 0.8,0.1,0.1 \
        --tokenizer-kind bpe --vocab-size "$VOCABULARY" --output "$STAGE/corpus" >/dev/null
}

# Transformer-XL left transformers after the release in the peers' environment, and that release does not install beside today's Python:
# the three files of its model go along and are loaded without the rest of the package.
add_peers() {
    local python packages from name
    if ! python=$("$SEGUE_ROOT/scripts/peers.sh" python transfoxl); then
        say "the public packages are not installed (scripts/peers.sh): the kit goes without their Transformer-XL"
        return
    fi
    packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    from="$packages/transformers/models/transfo_xl"
    mkdir -p "$STAGE/peers/transfo_xl"
    for name in configuration_transfo_xl modeling_transfo_xl modeling_transfo_xl_utilities; do
        install -m 644 "$from/$name.py" "$STAGE/peers/transfo_xl/"
    done
}

# The file of the peers' torch that names its commit, where it is installed.
version_of_peers_torch() {
    local python
    python=$("$SEGUE_ROOT/scripts/peers.sh" python base) || return 0
    "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib") + "/torch/version.py")'
}

add_programs() {
    install -m 755 "$PARTS/gpu-test" "$PARTS/gpu-bench" "$PARTS/segue" "$STAGE/"
    install -m 644 "$PARTS/peer_step.py" "$PARTS/ceilings.py" "$PARTS/README.md" "$STAGE/"
    mkdir -p "$STAGE/kit" "$STAGE/recipes"
    install -m 644 "$PARTS"/kit/*.py "$STAGE/kit/"
    install -m 644 "$PARTS"/recipes/*.toml "$STAGE/recipes/"
}

write_facts() {
    local version_py
    version_py=$(version_of_peers_torch)
    "$PARTS/pack/facts.py" "$STAGE" "$(dirname "$LIBTORCH_LIBRARIES")" ${version_py:+"$version_py"}
}

print_sizes() {
    local part
    printf '%-22s %10s\n' 'part, unpacked' MB
    (cd "$STAGE" && for part in *; do
        du --apparent-size --block-size=1 --summarize "$part"
    done) | sort --numeric-sort --reverse | awk '{ printf "%-22s %10.2f\n", $2, $1 / 1e6; all += $1 }
        END { printf "%-22s %10.2f\n", "all of it", all / 1e6 }'
    printf '%-22s %10s\n' "$NAME.tar.xz" "$(awk -v bytes="$1" 'BEGIN { printf "%.2f", bytes / 1e6 }')"
}

pack_kit() {
    local when
    when=$(git -C "$SEGUE_ROOT" log -1 --format=%ct)
    tar --sort=name --mtime="@$when" --owner=0 --group=0 --numeric-owner -C "$KIT" -cf - "$NAME" |
        xz -T0 -6 >"$KIT/$NAME.tar.xz"
    # One program under three names, of which two say what it runs.
    local name
    for name in start gpu-test gpu-bench; do
        install -m 755 "$PARTS/start" "$KIT/$name"
    done
}

check_size() {
    (($1 <= MOST_BYTES)) || fail "$KIT/$NAME.tar.xz has $1 bytes, more than $MOST_BYTES"
}

build_kit() {
    local bytes
    has xz || fail "the command 'xz' is missing: install xz-utils"
    has readelf || fail "the command 'readelf' is missing: install binutils"
    cd "$SEGUE_ROOT"
    LIBTORCH_LIBRARIES=$(readlink -f "${LIBTORCH:-.deps/libtorch}")/lib
    provide_licences
    build_binary "$@"
    rm -rf "${KIT:?}"
    lay_out "$STAGE"
    rm -r "${STAGE:?}/bin" # it starts the binary with libraries beside it; the kit's are torch's
    strip "$STAGE/libexec/segue"
    add_stub
    add_device_tests "$@"
    add_cases
    add_corpus
    add_peers
    add_programs
    write_facts
    pack_kit
    bytes=$(stat --format=%s "$KIT/$NAME.tar.xz")
    print_sizes "$bytes"
    rm -rf "${STAGE:?}"
    check_size "$bytes"
    say "the kit is in $KIT"
}

[[ "${BASH_SOURCE[0]}" != "$0" ]] || build_kit "$@"
