#!/usr/bin/env bash
# What make dist promises, tried with the files that it made: each is installed into an empty environment and trains there.
#
#   scripts/tests/dist_test.sh [FOLDER]      default: dist in the target folder; make test-dist makes it first
#
# The wheel's environment holds torch 2.11.0 of the public peers (scripts/peers.sh), linked package by package. Where that is not
# installed, a stand-in takes its place: a package torch with the libraries of the build. Which it was is said.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR/.. source=cache.sh
source "$(dirname "${BASH_SOURCE[0]}")/../cache.sh"

DIST="${1:-${CARGO_TARGET_DIR:-$SEGUE_ROOT/target}/dist}"
TORCH_VERSION=2.11.0
SANDBOX=$(mktemp -d)
trap 'rm -rf "$SANDBOX"' EXIT
unset LD_LIBRARY_PATH PYTHONPATH
# shellcheck source-path=SCRIPTDIR source=check.sh
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"

# The exit code is 69, and the words are in what is said.
refused() {
    local words=$1 code=0
    shift
    "$@" >"$SANDBOX/said" 2>&1 || code=$?
    cat "$SANDBOX/said"
    ((code == 69)) && grep -q -- "$words" "$SANDBOX/said" && grep -q '^hint: ' "$SANDBOX/said"
}

packages_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# Puts torch into the folder of packages $1.
provide_torch() {
    local into=$1 python from entry name
    if python=$("$SEGUE_ROOT/scripts/peers.sh" python base) && [[ -n "$python" ]]; then
        from=$(packages_of "$python")
        for entry in "$from"/*; do
            name=$(basename "$entry")
            case $name in pip* | setuptools* | _distutils_hack | distutils-precedence.pth) continue ;; esac
            [[ -e "$into/$name" ]] || ln -s "$entry" "$into/$name"
        done
        KIND="the wheel of torch $TORCH_VERSION"
    else
        mkdir -p "$into/torch" "$into/torch-$TORCH_VERSION.dist-info"
        touch "$into/torch/__init__.py"
        ln -s "$(readlink -f "${LIBTORCH:-$SEGUE_ROOT/.deps/libtorch}")/lib" "$into/torch/lib"
        printf 'Metadata-Version: 2.1\nName: torch\nVersion: %s\n' "$TORCH_VERSION" \
            >"$into/torch-$TORCH_VERSION.dist-info/METADATA"
        echo segue >"$into/torch-$TORCH_VERSION.dist-info/INSTALLER"
        KIND="a stand-in for torch"
    fi
}

ranks() {
    local flags=(--oversubscribe --bind-to none)
    [[ $(id -u) -ne 0 ]] || flags+=(--allow-run-as-root)
    mpirun "${flags[@]}" -n 2 "$@"
}

# Builds a corpus and trains two ranks on it with the program $1 and the recipe $2, in the folder $3.
trains() {
    local program=$1 recipe=$2 place=$3
    mkdir -p "$place"
    "$program" data build --preset documents --tokenizer-kind byte --train "$SANDBOX/train.txt" --valid "$SANDBOX/valid.txt" \
        --output "$place/corpus"
    ranks "$program" pretrain --config "$recipe" run.dir="$place/run" data.corpus="$place/corpus" train.steps=4
    [[ -f "$place/run/checkpoints/latest/model.safetensors" ]]
}

# No library that the program $1 loads lies in the cache of the build.
is_apart_from_the_build() {
    local listed
    listed=$(LD_TRACE_LOADED_OBJECTS=1 "$1")
    echo "$listed"
    grep -q libtorch_cpu.so <<<"$listed" && ! grep -q "$(readlink -f "$SEGUE_CACHE_DIR")/libtorch" <<<"$listed"
}

the_wheel_trains() {
    local wheel python packages
    wheel=$(echo "$DIST"/segue-*.whl)
    check "an environment" python3 -m venv "$SANDBOX/venv"
    python="$SANDBOX/venv/bin/python"
    packages=$(packages_of "$python")
    check "pip installs the wheel alone" "$python" -m pip install --quiet --no-index --no-deps "$wheel"
    check "without torch" refused 'torch is not installed' "$SANDBOX/venv/bin/segue" --version
    check "removal leaves nothing" "$python" -m pip uninstall --quiet --yes segue
    check "no file is left" eval "! compgen -G '$packages/segue*'"
    provide_torch "$packages"
    echo "dist: the wheel runs on $KIND"
    check "pip finds torch in place" "$python" -m pip install --quiet --no-index "$wheel"
    check "every file has its hash" hashes_hold "$python"
    check "no library of the build" is_apart_from_the_build "$packages/segue/bin/segue"
    check "python -m segue" "$python" -m segue --version
    check "two ranks train" trains "$SANDBOX/venv/bin/segue" "$packages/segue/recipes/tiny.toml" "$SANDBOX/wheel"
    check "segue launch starts the program itself" "$SANDBOX/venv/bin/segue" launch -n 2 pretrain \
        --config "$packages/segue/recipes/tiny.toml" run.dir="$SANDBOX/wheel/launched" data.corpus="$SANDBOX/wheel/corpus" train.steps=4
    check "a manual page" test -s "$SANDBOX/venv/share/man/man1/segue-pretrain.1"
}

hashes_hold() {
    "$1" - <<'PYTHON'
import base64, hashlib, importlib.metadata

files = importlib.metadata.files("segue")
hashed = [file for file in files if file.hash]
for file in hashed:
    digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_binary()).digest()).rstrip(b"=").decode()
    assert digest == file.hash.value, file
assert len(hashed) > 50, len(hashed)
PYTHON
}

the_wheel_says_what_is_missing() {
    local python="$SANDBOX/venv/bin/python" packages other="$SANDBOX/other" info
    packages=$(packages_of "$python")
    # Python packages on a path of their own: the binary does not find libtorch beside itself then.
    mkdir "$other"
    cp -r "$packages/segue" "$other/"
    check "torch in another folder" env PYTHONPATH="$other" "$python" -m segue --version
    sed -i 's/libmpi\.so\.40/libmpi.so.99/' "$other/segue/BUILD.json"
    check "no MPI library" refused 'libmpi.so.99' env PYTHONPATH="$other" "$python" -m segue --version
    sed -i 's/"libtorch": ".*"/"libtorch": "9.9.9"/' "$other/segue/BUILD.json"
    check "another torch" refused 'torch is 2.11.0.*expected 9.9.9' env PYTHONPATH="$other" "$python" -m segue --version
    info=$(grep -E '^(Requires-Dist|License-File)' "$packages"/segue-*.dist-info/METADATA)
    check "one dependency, three licences" test "$(wc -l <<<"$info")" -eq 4
    check "the dependency" grep -q "^Requires-Dist: torch==$TORCH_VERSION$" <<<"$info"
}

the_archive_trains() {
    local root
    mkdir "$SANDBOX/some where"
    check "unpacking" tar --zstd -xf "$(echo "$DIST"/segue-*.tar.zst)" -C "$SANDBOX/some where"
    root=$(echo "$SANDBOX/some where"/segue-*)
    check "no library of the build" is_apart_from_the_build "$root/libexec/segue"
    check "two ranks train" trains "$root/bin/segue" "$root/share/segue/recipes/tiny.toml" "$SANDBOX/archive"
    ln -s "$root/bin/segue" "$SANDBOX/segue"
    check "through a link" "$SANDBOX/segue" --version
    check "licences" test -s "$root/THIRD-PARTY.txt" -a -s "$root/licences/torch/LICENSE" -a -s "$root/LICENSE-MIT"
    check "a completion" bash -n "$root/share/bash-completion/completions/segue"
    # A library of this name is nowhere.
    sed -i 's/libmpi\.so\.40/libmpi.so.99/' "$root/libexec/segue"
    check "no MPI library" refused 'libmpi.so.99' "$root/bin/segue" --version
}

both_give_the_same_bytes() {
    cmp "$SANDBOX"/{wheel,archive}/run/checkpoints/latest/model.safetensors &&
        cmp "$SANDBOX"/wheel/{run,launched}/checkpoints/latest/model.safetensors
}

for part in train valid; do
    cat "$SEGUE_ROOT"/docs/book/src/*/*.md "$SEGUE_ROOT"/benchmarks/*.md >"$SANDBOX/$part.txt"
done
the_wheel_trains
the_wheel_says_what_is_missing
the_archive_trains
check "wheel and archive give the same bytes" both_give_the_same_bytes
echo "dist: $PASSED checks passed"
