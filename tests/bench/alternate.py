"""Two programs measured in turn in the same run, so that a drifting machine slows both alike."""

import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROUNDS = 8
# A job of gloo or of mpirun can wait for ever for a rank that never came; no run of a race takes as long as this.
RUN_LIMIT_S = 600
# What Segue asks of the C library's allocator (keep_freed_memory): freed memory is kept, not given back and faulted in anew.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1), "MALLOC_TOP_PAD_": str(1 << 28)}


def skip(why):
    """Ends the program without a failure: what it compares with is not here."""
    print(f"skipped: {why}")
    sys.exit(0)


def peer_python(name):
    """The interpreter of an environment of scripts/peers.sh."""
    found = subprocess.run([ROOT / "scripts/peers.sh", "python", name], capture_output=True, text=True)
    if found.returncode != 0:
        skip(f"the Python packages to compare with are not installed; scripts/peers.sh installs them ({name})")
    return found.stdout.strip()


def processor():
    """Its name."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def segue_binary():
    """SEGUE_BIN, else the release binary that `make bench` builds."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    binary = pathlib.Path(os.environ.get("SEGUE_BIN", target / "release/segue"))
    if not binary.is_file():
        sys.exit(f"{binary} is not there: run `make bench`, or name a binary in SEGUE_BIN")
    return str(binary)


def mpirun(ranks):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", "-n", str(ranks), "--bind-to", "none", *root]


def last_json(command, **environment):
    """Runs `command` and returns the JSON object on its last line of stdout that holds one.

    Ends the program where there is none, or where the command takes longer than RUN_LIMIT_S.
    """
    shown = " ".join(map(str, command))
    # A session of its own, so that the ranks end with what started them.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
                          env={**os.environ, **environment}) as running:
        try:
            out, err = running.communicate(timeout=RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            sys.exit(f"{shown}\nhas not ended within {RUN_LIMIT_S} s")
    for line in reversed(out.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    sys.exit(f"{shown}\nexit code {running.returncode}, no JSON line\n{err[-4000:]}")


def in_turn(ours, theirs, key, unit, rounds=ROUNDS):
    """Calls `ours` and `theirs` alternately, prints each pair of their figure `key` and returns what was seen.

    Which of them goes first changes from round to round. The ratio quoted is that of the medians, its range that of the pairs; above 1, ours
    is the faster.
    """
    pairs = []
    print(f"{'round':>5}  {'Segue ' + unit:>18}  {'peer ' + unit:>18}  {'ratio':>6}")
    for number in range(1, rounds + 1):
        if number % 2 == 1:
            first = ours()
            pair = first, theirs()
        else:
            first = theirs()
            pair = ours(), first
        pairs.append(pair)
        mine, other = (figures[key] for figures in pair)
        print(f"{number:>5}  {mine:>18.2f}  {other:>18.2f}  {mine / other:>6.2f}", flush=True)
    mine, other, ratios = ([first[key] for first, _ in pairs], [second[key] for _, second in pairs],
                           [first[key] / second[key] for first, second in pairs])
    summary = {
        "figure": key,
        "segue_median": statistics.median(mine),
        "peer_median": statistics.median(other),
        "ratio": statistics.median(mine) / statistics.median(other),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "segue": [first for first, _ in pairs],
        "peer": [second for _, second in pairs],
    }
    print(f"{'median':>6} {summary['segue_median']:>18.2f}  {summary['peer_median']:>18.2f}"
          f"  {summary['ratio']:>6.2f}   (pairs {min(ratios):.2f} to {max(ratios):.2f})")
    return summary


def fastest(variants, run, key, tries=2):
    """The peer at its own best settings: the variant whose best of some tries is the fastest, by its name.

    Tries take turns, so that a machine that drifts prefers none. A variant that fails is told and left out. SEGUE_PEER_SETTINGS names the variants
    to try, with `;` between them, where a run before has tried them all on this machine; a single one is not tried.
    """
    asked = [name for name in os.environ.get("SEGUE_PEER_SETTINGS", "").split(";") if name]
    named = [name for name in asked if name in variants]
    for name in asked:
        if name not in variants:
            print(f"SEGUE_PEER_SETTINGS: this peer has no setting '{name}', but {', '.join(variants)}")
    if len(named) == 1:
        print(f"peer races with: {named[0]}, as SEGUE_PEER_SETTINGS says")
        return named[0]
    variants = named or variants
    seen = {}
    for name in [*variants] * tries:
        if seen.get(name) == 0:
            continue
        try:
            figure = run(name)[key]
            seen[name] = max(seen.get(name, 0), figure)
            print(f"peer, {name}: {figure:.2f}", flush=True)
        except SystemExit as failed:
            seen[name] = 0
            print(f"peer, {name}: fails: {str(failed).strip().splitlines()[-1]}", flush=True)
    best = max(seen, key=seen.get)
    if seen[best] == 0:
        sys.exit("the peer runs in none of its settings")
    print(f"peer races with: {best}")
    return best


def write(path, summary):
    """The summary as JSON: into `path` where one is given, and on the last line of stdout."""
    if path:
        pathlib.Path(path).write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps({key: value for key, value in summary.items() if not isinstance(value, list)}))
