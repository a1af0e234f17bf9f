#!/usr/bin/env python3
"""Pairs of steps of a complement GAN, of the discriminator and of the generator: Segue next to the public program's definitions in today's PyTorch.

    python3 tests/bench/complement_gan_vs_peer.py --corpus FOLDER [--convolutional] [--rounds 8] [--pairs 50] [--output FILE]

FOLDER holds MNIST's IDX files, or with --convolutional those of CIFAR-10. Both programs are one process of two threads, with batches of 100 and Adam, alone, in
turn. Segue's seconds are those of `metrics.jsonl` behind the first pairs: batches, losses, gradients and updates, without evaluations and checkpoints. The peer
(complement_gan_step.py) runs at the fastest of the settings in VARIANTS; one that has not ended, compiled and timed, within alternate.RUN_LIMIT_S is left out.
"""

import argparse
import json
import pathlib
import tempfile

from alternate import KEEP_FREED_MEMORY, ROOT, ROUNDS, fastest, in_turn, last_json, peer_python, processor, segue_binary, write

BATCH, THREADS = 100, 2
COMMON = f"""
[train]
lanes = {BATCH}
micro_batch = {BATCH}
threads = {THREADS}
device = "cpu"

[schedule]
kind = "constant"

[eval]
every = 0

[checkpoint]
every = 0

[log]
every = 2
tensorboard = false
"""
LAYERS = """
[model]
model_type = "complement-gan"
hidden = [1000, 500, 250, 250, 250]
generator_hidden = [500, 500]
noise_size = 100

[data]
labels_per_class = 10

[optim]
lr = 3e-3
beta1 = 0.5
beta2 = 0.9999
clip = 0.0

[optim.generator]
lr = 1e-3
beta1 = 0.0
"""
CONVOLUTIONAL = """
[model]
model_type = "complement-gan"
network = "convolutional"
filters = [96, 192]
generator_filters = [512, 256, 128]
noise_size = 100
input_noise = 0.05
input_dropout = 0.2
dropout = 0.5
dropped = "values"

[objective]
feature_distance = "mean-absolute"
input_entropy = 0.01

[data]
labels_per_class = 400
unlabelled = "all"

[optim]
lr = 6e-4
beta1 = 0.5
beta2 = 0.999
clip = 0.0

[optim.generator]
lr = 3e-4
beta1 = 0.0

[optim.encoder]
lr = 3e-4
beta1 = 0.0
"""
# Settings of the peer: options of its program, and its environment.
VARIANTS = {
    "as it comes": ([], {}),
    "plain": ([], KEEP_FREED_MEMORY),
    "fused Adam": (["--fused"], KEEP_FREED_MEMORY),
    "compiled": (["--compile"], KEEP_FREED_MEMORY),
    "fused Adam, compiled": (["--fused", "--compile"], KEEP_FREED_MEMORY),
}
OF_CONVOLUTIONS = {
    "fused Adam, channels last": (["--fused", "--channels-last"], KEEP_FREED_MEMORY),
    "fused Adam, channels last, compiled": (["--fused", "--channels-last", "--compile"], KEEP_FREED_MEMORY),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--convolutional", action="store_true", help="the networks for CIFAR-10")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--pairs", type=int, help="timed pairs of a run [default: 50, or 2 with --convolutional]")
    parser.add_argument("--output", help="JSON file for every figure")
    args = parser.parse_args()
    binary, python = segue_binary(), peer_python("base")
    warmup, pairs = (1, args.pairs or 2) if args.convolutional else (10, args.pairs or 50)
    variants = VARIANTS | (OF_CONVOLUTIONS if args.convolutional else {})
    # Programs are started in the project's folder.
    corpus = str(pathlib.Path(args.corpus).resolve())
    with tempfile.TemporaryDirectory() as folder:
        recipe = pathlib.Path(folder, "recipe.toml")
        recipe.write_text((CONVOLUTIONAL if args.convolutional else LAYERS) + COMMON)
        program = [binary, "--json", "pretrain", "--config", str(recipe), f"data.corpus={corpus}", f"train.steps={2 * (warmup + pairs)}"]
        count = last_json([*program, "--dry-run", f"run.dir={folder}/dry"])["cost"]["parameters"]

        def ours():
            run = tempfile.mkdtemp(dir=folder)
            last_json([*program, f"run.dir={run}/run"])
            rows = [json.loads(line) for line in pathlib.Path(run, "run/metrics.jsonl").read_text().splitlines()]
            # A row of two steps is a pair.
            timed = [2 * row["step_s"] for row in rows if row["kind"] == "train" and row["step"] > 2 * warmup]
            assert len(timed) == pairs, f"{len(timed)} rows of pairs, expected {pairs}"
            return {"pairs_per_min": 60 * pairs / sum(timed), "pair_s": sum(timed) / pairs}

        theirs = [python, str(ROOT / "tests/bench/complement_gan_step.py"), "--batch", str(BATCH), "--threads", str(THREADS), "--pairs", str(pairs),
                  "--warmup", str(warmup), *["--convolutional"] * args.convolutional]

        def peer(variant):
            options, environment = variants[variant]
            found = last_json([*theirs, *options], OMP_NUM_THREADS=str(THREADS), **environment)
            assert found["params"] == count, f"the peer has {found['params']} parameters, and ours {count}"
            return found

        best = fastest(variants, peer, "pairs_per_min")
        summary = in_turn(ours, lambda: peer(best), "pairs_per_min", "pairs/min", args.rounds)
    summary |= {"peer_settings": best, "parameters": count, "torch": summary["peer"][0]["torch"], "processor": processor(), "threads": THREADS,
                "segue_pair_s": 60 / summary["segue_median"], "peer_pair_s": 60 / summary["peer_median"]}
    write(args.output, summary)


main()
