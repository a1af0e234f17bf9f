#!/usr/bin/env python3
"""Reads a run's TensorBoard events with the tensorboard package and prints its scalars.

    $(scripts/peers.sh python base) tests/peers/read_tensorboard.py FOLDER_OR_FILE

Prints one JSON object: tag -> list of [step, value] in the order of the file. Exits 1 where no scalar is found,
2 where the package is not installed.
"""

import json
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
except ImportError as error:
    print(f"{error}: run scripts/peers.sh, then this script with the interpreter it names", file=sys.stderr)
    sys.exit(2)


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER_OR_FILE")
    # 0: keep every point instead of a random sample.
    events = EventAccumulator(sys.argv[1], size_guidance={SCALARS: 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    print(json.dumps({tag: [[point.step, point.value] for point in events.Scalars(tag)] for tag in tags}))
    if not tags:
        sys.exit(1)


main()
