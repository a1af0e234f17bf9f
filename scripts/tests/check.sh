# shellcheck shell=bash
# What shell tests judge with: `check NAME COMMAND...` counts a command that succeeds in PASSED, and ends the test where one fails, with
# what that has said. The caller sets SANDBOX, a folder of its own.
PASSED=0

check() {
    local name=$1
    shift
    if "$@" >"$SANDBOX/log" 2>&1; then
        PASSED=$((PASSED + 1))
    else
        printf 'FAILED: %s\n' "$name" >&2
        cat "$SANDBOX/log" >&2
        exit 1
    fi
}
