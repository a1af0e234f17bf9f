#!/usr/bin/env python3
"""Two builds of Segue next to each other: the three steps that `make bench` races, and the memory that they take.

    python3 tests/bench/two_builds.py BEFORE AFTER [--rounds 5] [--output FILE]

BEFORE and AFTER are binaries. Each round runs both on two ranks of one thread, and which of them goes first changes from round to round.
Memory is the largest resident set of a rank.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys

from alternate import ROUNDS, last_json, mpirun, write

SIZES = ["--layers", "6", "--d-model", "256", "--heads", "4", "--d-inner", "1024", "--steps", "8", "--warmup", "2"]
RACES = {
    "transfoxl": ["step", "--vocab", "8000", "--segment", "128", "--mem", "128", "--micro-batch", "8"],
    "xlnet": ["step", "--vocab", "8000", "--model", "xlnet", "--segment", "512", "--mem", "384", "--micro-batch", "4",
              "--reuse", "256", "--predict", "85"],
    "task": ["task", "--vocab", "32000", "--length", "128", "--batch", "16"],
}


def timed(binary, race):
    """Seconds a step and MiB of the largest rank, seen by a process that starts nothing else."""
    found = last_json([sys.executable, os.path.abspath(__file__), "--one", binary, race])
    return found["step_s"], found["peak_mib"]


def one(binary, race):
    found = last_json([*mpirun(2), binary, "bench", RACES[race][0], "--json", *SIZES, *RACES[race][1:]])
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    write(None, {"step_s": found["step_s"], "peak_mib": peak})


def race_builds(before, after, race, rounds):
    """Median seconds a step and MiB of both builds, and the ratio of times: above 1, AFTER is the faster."""
    seen = {before: [], after: []}
    for number in range(rounds):
        for binary in (before, after) if number % 2 == 0 else (after, before):
            seen[binary].append(timed(binary, race))
        (old, old_mib), (new, new_mib) = seen[before][-1], seen[after][-1]
        print(f"{race:>10} {number + 1:>3}  {old:8.4f} s {old_mib:8.0f} MiB   {new:8.4f} s {new_mib:8.0f} MiB   {old / new:5.3f}", flush=True)
    old, new = ([time for time, _ in seen[binary]] for binary in (before, after))
    ratios = [first / second for first, second in zip(old, new)]
    figures = {
        "before_s": statistics.median(old), "after_s": statistics.median(new), "ratio": statistics.median(old) / statistics.median(new),
        "ratio_min": min(ratios), "ratio_max": max(ratios),
        "before_mib": statistics.median(mib for _, mib in seen[before]), "after_mib": statistics.median(mib for _, mib in seen[after]),
    }
    print(f"{race:>10} median {figures['before_s']:.4f} s {figures['before_mib']:.0f} MiB, {figures['after_s']:.4f} s {figures['after_mib']:.0f} MiB: "
          f"{figures['ratio']:.3f} ({figures['ratio_min']:.3f} to {figures['ratio_max']:.3f})")
    return figures


def main():
    if sys.argv[1:2] == ["--one"]:
        return one(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--output", help="JSON file for every figure")
    args = parser.parse_args()
    before, after = map(os.path.abspath, (args.before, args.after))
    write(args.output, {f"{race}_{name}": figure for race in RACES for name, figure in race_builds(before, after, race, args.rounds).items()})


main()
