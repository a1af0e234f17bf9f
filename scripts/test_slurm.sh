#!/usr/bin/env bash
# Runs the tests under a real Slurm of two nodes on this machine. make test-slurm calls it.
#
#   scripts/test_slurm.sh [CARGO FLAGS]
#
# As root on Debian and Ubuntu, what is missing of Slurm is installed; the daemons are the tests' own and end with them. Where it
# cannot be installed, one line says that nothing was tested, and the exit code is 0.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cache.sh
source "$(dirname "${BASH_SOURCE[0]}")/cache.sh"

PROGRAMS=(munged slurmctld slurmd srun sbatch scancel scontrol squeue sinfo)
PACKAGES=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge)

is_there() {
    local program
    for program in "${PROGRAMS[@]}"; do
        PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null || return 1
    done
}

skip() {
    say "Slurm was NOT tested: $*"
    exit 0
}

# Debian starts the daemons of what it installs, without a configuration: they are told not to.
install_slurm() {
    local policy=/usr/sbin/policy-rc.d made=false done=0
    say "installing ${PACKAGES[*]}"
    export DEBIAN_FRONTEND=noninteractive
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
        made=true
    fi
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${PACKAGES[@]}"; } >&2 || done=$?
    if $made; then rm -f "$policy"; fi
    return "$done"
}

main() {
    [[ $(id -u) -eq 0 ]] || skip "its daemons need root"
    if ! is_there; then
        command -v apt-get >/dev/null || skip "it is not installed, and there is no apt-get to install it"
        install_slurm || skip "apt-get could not install ${PACKAGES[*]}"
        is_there || skip "the packages ${PACKAGES[*]} lack one of ${PROGRAMS[*]}"
    fi
    cd "$SEGUE_ROOT"
    # What is missing now is a fault of these tests.
    export SEGUE_REQUIRE=slurm PATH="$PATH:/usr/sbin"
    cargo test --workspace --test slurm --test pbs "$@" -- --test-threads 1 --nocapture --include-ignored
}

main "$@"
