#!/usr/bin/env bash
# Builds what is handed out: a Python wheel that takes libtorch from the package torch, and an archive that holds it.
#
#   scripts/dist.sh [CARGO FLAGS]      make dist calls it; the files lie in dist/ of the target folder
#
# The binary is a release build that looks for libtorch at both places, relative to itself. Licences of libtorch and of the two
# CUDA libraries that it links are taken out of their wheels, which are fetched once into the cache for that.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

TARGET="${CARGO_TARGET_DIR:-$SEGUE_ROOT/target}"
DIST="$TARGET/dist"
HERE="$SEGUE_ROOT/scripts/dist"
LICENCES="$SEGUE_CACHE_DIR/libtorch-$LIBTORCH_VERSION-licences"
# shellcheck disable=SC2016 # the loader's variable, not the shell's
RUNPATH='$ORIGIN/../lib:$ORIGIN/../../torch/lib'
ZSTD_LEVEL=10

# Licence files of each wheel that libtorch's libraries come from, in a folder of its name.
provide_licences() {
    local index requirement platform sha256 name
    [[ ! -d "$LICENCES" ]] || return 0
    lock_cache licences
    [[ ! -d "$LICENCES" ]] || return 0
    work=$(mktemp -d "$SEGUE_CACHE_DIR/.licences.XXXXXX")
    trap 'rm -rf "$work"' EXIT # `work` is no local: the trap outlives the function
    for index in "${!WHEELS[@]}"; do
        read -r requirement platform sha256 <<<"${WHEELS[$index]}"
        name=${requirement%%=*}
        mkdir -p "$work/wheel" "$work/licences/$name"
        fetch_wheel "$requirement" "$platform" "$sha256" "$work/wheel"
        unzip_licences "$work/wheel" "$work/licences/$name"
        rm -rf "$work/wheel"
    done
    mv "$work/licences" "$LICENCES"
    rm -rf "$work"
    trap - EXIT
}

unzip_licences() {
    python3 - "$1" "$2" <<'PYTHON'
import pathlib, sys, zipfile

folder, into = map(pathlib.Path, sys.argv[1:])
for wheel in folder.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" in name and name.split("/")[-1].lower().startswith(
            ("license", "notice"))]
        if not names:
            sys.exit(f"segue: error: {wheel.name} holds no licence")
        for name in names:
            (into / name.split("/")[-1]).write_bytes(archive.read(name))
PYTHON
}

build_binary() {
    say "building the release binary"
    SEGUE_RPATH="$RUNPATH" cargo build --release --package segue "$@"
}

# Everything but the libraries, as the archive has it. The wheel takes its parts from here.
lay_out() {
    local stage=$1
    mkdir -p "$stage"/{bin,libexec,share/segue}
    install -m 755 "$TARGET/release/segue" "$stage/libexec/segue"
    install -m 755 "$HERE/segue.sh" "$stage/bin/segue"
    cp -r "$SEGUE_ROOT/configs/recipes" "$SEGUE_ROOT/configs/sweeps" "$SEGUE_ROOT/configs/studies" "$stage/share/segue/"
    cp "$SEGUE_ROOT"/LICENSE-{MIT,APACHE} "$HERE/README.md" "$stage/"
    "$HERE/facts.py" "$stage/libexec/segue" "$LIBTORCH_VERSION" "$stage/BUILD.json"
    "$HERE/licences.py" "$LICENCES" "$stage/THIRD-PARTY.txt"
}

# The program writes these itself, so it needs its libraries.
add_pages() {
    local stage=$1 share="$1/share"
    mkdir -p "$share"/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
    "$stage/bin/segue" man --output "$share/man/man1"
    # Beside the files that name them in their first lines.
    "$stage/bin/segue" schema recipe >"$share/segue/recipes/recipe.schema.json"
    "$stage/bin/segue" schema sweep >"$share/segue/sweeps/sweep.schema.json"
    "$stage/bin/segue" schema study >"$share/segue/studies/study.schema.json"
    "$stage/bin/segue" completions bash >"$share/bash-completion/completions/segue"
    "$stage/bin/segue" completions zsh >"$share/zsh/site-functions/_segue"
    "$stage/bin/segue" completions fish >"$share/fish/vendor_completions.d/segue.fish"
}

# The libraries that the binary needs and no host has: those that lie in libtorch's folder, and what they need there.
add_libraries() {
    local stage=$1 from=$2 names=("libtorch_cpu.so") name needed
    mkdir -p "$stage/lib"
    while ((${#names[@]})); do
        name=${names[0]}
        names=("${names[@]:1}")
        [[ -e "$from/$name" && ! -e "$stage/lib/$name" ]] || continue
        install -m 755 "$from/$name" "$stage/lib/$name"
        mapfile -t needed < <(readelf -d "$from/$name" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
        names+=("${needed[@]}")
    done
    cp -r "$LICENCES" "$stage/licences"
    cat >"$stage/licences/README.md" <<'TEXT'
Licences of the libraries in `lib/`: `torch` of libtorch_cpu and libc10 with what is compiled into them, `nvidia-cuda-runtime` of libcudart,
`nvidia-cuda-cupti` of libcupti. libgomp is GCC's, as the wheel of torch carries it: GPL 3 with the GCC Runtime Library Exception 3.1
(https://www.gnu.org/licenses/gcc-exception-3.1.html); its source is at https://gcc.gnu.org/.
TEXT
}

pack_archive() {
    local folder=$1 name=$2 when
    when=$(git -C "$SEGUE_ROOT" log -1 --format=%ct)
    tar --sort=name --mtime="@$when" --owner=0 --group=0 --numeric-owner -C "$folder" -cf - "$name" |
        zstd --quiet --force -T0 -"$ZSTD_LEVEL" -o "$DIST/$name.tar.zst"
    echo "$DIST/$name.tar.zst"
}

build() {
    local version name libtorch
    has zstd || fail "the command 'zstd' is missing: install zstd"
    has readelf || fail "the command 'readelf' is missing: install binutils"
    cd "$SEGUE_ROOT"
    provide_licences
    build_binary "$@"
    mkdir -p "$DIST"
    rm -rf "$DIST/.stage"
    lay_out "$DIST/.stage"
    version=$(sed -n 's/.*"version": "\(.*\)",/\1/p' "$DIST/.stage/BUILD.json")
    name="segue-$version-x86_64-linux"
    rm -rf "${DIST:?}"/segue-* && mv "$DIST/.stage" "$DIST/$name"
    libtorch=$(readlink -f "${LIBTORCH:-.deps/libtorch}")
    add_libraries "$DIST/$name" "$libtorch/lib"
    add_pages "$DIST/$name"
    "$HERE/wheel.py" "$DIST/$name" "$DIST"
    pack_archive "$DIST" "$name"
    rm -rf "${DIST:?}/$name"
}

[[ "${BASH_SOURCE[0]}" != "$0" ]] || build "$@"
