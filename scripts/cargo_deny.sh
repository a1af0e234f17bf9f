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
# shellcheck source-path=SCRIPTDIR source=cargo_tool.sh
source "$(dirname "${BASH_SOURCE[0]}")/cargo_tool.sh"

VERSION=0.20.2
FETCH_SECONDS=120

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
    provide_cargo_tool cargo-deny "$VERSION"
    DENY="$CARGO_TOOL"
    [[ "${1:-}" != --tool ]] || return 0
    "$DENY" --locked check licenses bans sources
    check_advisories
}

main "$@"
