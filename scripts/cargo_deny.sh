#!/usr/bin/env bash
# Checks our dependencies against deny.toml: licences, duplicate versions, sources, security advisories.
#
#   scripts/cargo_deny.sh           check
#   scripts/cargo_deny.sh --tool    build the tool where there is none, and no more
#
# A cargo-deny already on PATH is used as it is; otherwise one is built into the cache folder, once. The advisory
# database is fetched from its public home; where that cannot be reached, one line says so and the check passes.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cache.sh
source "$(dirname "${BASH_SOURCE[0]}")/cache.sh"

VERSION=0.20.2
INSTALLED="$SEGUE_CACHE_DIR/cargo-deny-$VERSION"
FETCH_SECONDS=120

# Built in a temporary folder and renamed: what lies at the final path is always whole.
build_tool() {
    lock_cache cargo-deny
    [[ ! -x "$INSTALLED/bin/cargo-deny" ]] || return 0
    say "building cargo-deny $VERSION, once (about a minute on two cores)"
    rm -rf "$SEGUE_CACHE_DIR"/.building-cargo-deny.* # left by builds that were killed; the lock says none is running
    work=$(mktemp -d "$SEGUE_CACHE_DIR/.building-cargo-deny.XXXXXX")
    trap 'rm -rf "$work"' EXIT # `work` is no local: the trap outlives the function
    # From a folder outside the checkout, whose .cargo/config.toml is none of this tool's business. Unoptimised, which takes a
    # fourth of the processor's time and costs a check two seconds.
    (cd "$work" && CARGO_PROFILE_DEV_DEBUG=0 cargo install cargo-deny --debug --quiet --locked --version "$VERSION" \
        --root "$work/root" --target-dir "$work/target")
    rm -rf "$INSTALLED"
    mv "$work/root" "$INSTALLED"
    rm -rf "$work"
    trap - EXIT
}

# Sets DENY to the tool's path.
provide_tool() {
    if command -v cargo-deny >/dev/null; then
        DENY=cargo-deny
        return
    fi
    DENY="$INSTALLED/bin/cargo-deny"
    [[ -x "$DENY" ]] || build_tool
}

check_advisories() {
    local code=0
    GIT_TERMINAL_PROMPT=0 timeout "$FETCH_SECONDS" "$DENY" fetch db >/dev/null 2>&1 || code=$?
    case $code in
        0) "$DENY" --offline check advisories ;; # --offline: the database just fetched, and no other
        124) say "security advisories NOT checked: their database did not come within $FETCH_SECONDS seconds" ;;
        *) say "security advisories NOT checked: their database cannot be reached from here" ;;
    esac
}

main() {
    cd "$SEGUE_ROOT"
    provide_tool
    [[ "${1:-}" != --tool ]] || return 0
    "$DENY" --locked check licenses bans sources
    check_advisories
}

main "$@"
