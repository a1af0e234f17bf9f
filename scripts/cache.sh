# shellcheck shell=bash
# Sourced by the other scripts: where Segue keeps what it downloads, and how the scripts speak.

# Everything that may be fetched again lives here, outside every checkout, and is shared by all of them.
SEGUE_CACHE_DIR="${SEGUE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/segue}"

# The checkout that holds this file (for the scripts that source it).
# shellcheck disable=SC2034
SEGUE_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

say() { printf 'segue: %s\n' "$*" >&2; }

fail() {
    printf 'segue: error: %s\n' "$*" >&2
    exit 1
}

# Holds the lock of a part of the cache until this shell ends: two set-ups never write the same folder.
# The lock's descriptor is passed on to children, so nothing started under it may outlive the script.
lock_cache() {
    local name=$1
    command -v flock >/dev/null || fail "the command 'flock' is missing: install util-linux"
    mkdir -p "$SEGUE_CACHE_DIR"
    exec 9>"$SEGUE_CACHE_DIR/.$name.lock"
    if ! flock --nonblock 9; then
        say "another set-up is filling $SEGUE_CACHE_DIR; waiting for it"
        flock 9
    fi
}
