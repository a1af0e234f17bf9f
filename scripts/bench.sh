#!/usr/bin/env bash
# Speed next to the public Python peers, in turn and in the same run. `make bench` builds first.
#
#   scripts/bench.sh [RESULTS_FOLDER]      default: runs/bench
#
# Figures are for reading: nothing here passes or fails. What the peers need is installed by scripts/peers.sh.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cache.sh
source "$(dirname "${BASH_SOURCE[0]}")/cache.sh"

RESULTS="${1:-runs/bench}"

main() {
    local python
    cd "$SEGUE_ROOT"
    python=$(scripts/peers.sh python base || echo python3)
    mkdir -p "$RESULTS"
    "$python" tests/bench/step_vs_peer.py transfoxl --output "$RESULTS/step.json"
    "$python" tests/bench/step_vs_peer.py xlnet --output "$RESULTS/step-xlnet.json"
    "$python" tests/bench/recurrent_vs_peer.py --output "$RESULTS/step-recurrent.json"
    "$python" tests/bench/task_vs_peer.py --output "$RESULTS/task.json"
    "$python" tests/bench/tokenize_vs_peer.py --output "$RESULTS/tokenize.json"
    say "the figures as JSON: $RESULTS"
}

main
