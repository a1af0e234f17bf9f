#!/usr/bin/env bash
# Installs the public Python packages Segue is compared with, in the cache folder. Nothing else needs them.
#
#   scripts/peers.sh                 install both environments (5.3 GB, about 2 minutes)
#   scripts/peers.sh python NAME     print the interpreter of an installed one; exit 1 where it is not installed
#
# NAME is `base` (PyTorch and today's packages) or `transfoxl` (the last transformers with Transformer-XL,
# laid over `base`). transfoxl's tokenizers wheel exists for Python 3.8 to 3.11 only.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cache.sh
source "$(dirname "${BASH_SOURCE[0]}")/cache.sh"

PEERS="$SEGUE_CACHE_DIR/peers"
REQUIREMENTS="$SEGUE_ROOT/tests/peers"

# An environment is whole when its stamp holds the requirements it was made from; the stamp is written last.
is_whole() { cmp --silent "$PEERS/$1/.segue-stamp" "$REQUIREMENTS/$1.txt"; }

print_interpreter() {
    local name=$1
    [[ -f "$REQUIREMENTS/$name.txt" ]] || fail "no environment '$name': base or transfoxl"
    is_whole "$name" || exit 1
    printf '%s\n' "$PEERS/$name/bin/python"
}

# Makes an empty environment NAME in its final place (an environment cannot be moved once it is made).
new_environment() {
    local name=$1
    say "installing the '$name' peers into $PEERS/$name"
    rm -rf "${PEERS:?}/$name"
    python3 -m venv "$PEERS/$name" ||
        fail "python3 cannot make a virtual environment (on Debian: apt-get install python3-venv)"
}

pip_install() {
    local name=$1
    shift
    "$PEERS/$name/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check \
        "$@" -r "$REQUIREMENTS/$name.txt"
}

publish() { cp "$REQUIREMENTS/$1.txt" "$PEERS/$1/.segue-stamp"; }

site_packages() { "$PEERS/$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }

install_base() {
    new_environment base
    pip_install base
    publish base
}

install_transfoxl() {
    new_environment transfoxl
    site_packages base >"$(site_packages transfoxl)/base.pth"
    pip_install transfoxl --no-deps
    publish transfoxl
}

main() {
    if [[ "${1:-}" == python ]]; then
        print_interpreter "${2:?NAME is missing: base or transfoxl}"
        return
    fi
    [[ $# -eq 0 ]] || fail "usage: scripts/peers.sh [python NAME]"
    lock_cache peers
    is_whole base || install_base
    is_whole transfoxl || install_transfoxl
    say "the peers are in $PEERS"
}

main "$@"
