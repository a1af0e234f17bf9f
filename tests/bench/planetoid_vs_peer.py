#!/usr/bin/env python3
"""Steps of contexts on a graph: Segue next to the public program's algorithm, written plainly in PyTorch.

    python3 tests/bench/planetoid_vs_peer.py FOLDER [--rounds 8] [--steps 4] [--output FILE]

FOLDER holds `graph.adj` and the rest of a data set, such as Pubmed's. Both walk from 200 nodes a step and update an embedding of 50 and a softmax over all
nodes, alone, in turn, products on one thread (planetoid_step.py); Segue draws walks on a thread of its own meanwhile. Seconds are those of steps after the first ones, as `metrics.jsonl` has them: walks, loss, gradient
and update. An epoch is as many steps as start at every node once.
"""

import argparse
import json
import pathlib
import tempfile

from alternate import KEEP_FREED_MEMORY, ROOT, ROUNDS, fastest, in_turn, last_json, peer_python, segue_binary, write

WALKS, WARMUP = 200, 2
# Settings of the peer: its environment.
VARIANTS = {"as it comes": {}, "keeps freed memory": KEEP_FREED_MEMORY}


def ours(folder, steps):
    """Walks a second of our steps."""
    with tempfile.TemporaryDirectory() as run:
        last_json([segue_binary(), "pretrain", "--json", "--config", str(ROOT / "configs/recipes/planetoid-pubmed.toml"), f"run.dir={run}",
                   f"data.corpus={folder}", "train.pretrain_label=0", f"train.pretrain_contexts={WARMUP + steps}",
                   f"train.context_batch={WALKS}", f"train.steps={WARMUP + steps}", "train.lanes=1", "log.every=1", "eval.every=0",
                   "checkpoint.every=0"])
        rows = [json.loads(line) for line in pathlib.Path(run, "metrics.jsonl").read_text().splitlines()]
    seconds = sum(row["step_s"] for row in rows if row["kind"] == "train" and row["step"] > WARMUP)
    return {"walks_per_s": WALKS * steps / seconds, "seconds": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--output", help="JSON file for every figure")
    args = parser.parse_args()
    python = peer_python("base")
    # Programs are started in the project's folder.
    folder = str(pathlib.Path(args.folder).resolve())
    program = [python, str(ROOT / "tests/bench/planetoid_step.py"), folder, "--walks", str(WALKS), "--steps", str(args.steps)]

    def peer(variant):
        return last_json(program, OMP_NUM_THREADS="1", **VARIANTS[variant])

    best = fastest(VARIANTS, peer, "walks_per_s")
    summary = in_turn(lambda: ours(folder, args.steps), lambda: peer(best), "walks_per_s", "walks/s", args.rounds)
    summary["peer_settings"] = best
    write(args.output, summary)


main()
