#!/usr/bin/env python3
"""Training steps of a sentence model with latent variables, and its likelihoods by 100 samples: Segue next to PyTorch.

    python3 tests/bench/latent_vs_peer.py --text FILE [--evaluate] [--rounds 8] [--steps 50] [--threads 2] [--output FILE]

FILE has a sentence a line. Both programs are one process, alone, in turn, on batches of 32 sentences with 16 samples each: the bound of importance-weighted
autoencoders by doubly reparametrised gradients, Adam, dropout with masks that all samples of a sentence share. Segue's seconds are those of `metrics.jsonl` behind the
first steps. The peer (latent_step.py) runs at the fastest of the settings in VARIANTS. With --evaluate: sentences a second of likelihoods by 100 samples, by
`segue eval latent` without its start, and by the peer's, one sentence after the other as public programs have it, or 32 side by side.
"""

import argparse
import json
import pathlib
import tempfile
import time

from alternate import KEEP_FREED_MEMORY, ROOT, ROUNDS, fastest, in_turn, last_json, peer_python, processor, segue_binary, write

BATCH, SAMPLES, WARMUP = 32, 16, 10
RECIPE = f"""
[model]
model_type = "latent"
latent_count = 40
dropout_input = 0.1
dropout_output = 0.2

[objective]
kind = "bound"
samples = {SAMPLES}

[train]
lanes = {BATCH}
micro_batch = {BATCH}
device = "cpu"

[optim]
kind = "adam"
lr = 3e-3
beta1 = 0.0
beta2 = 0.999
clip = 10.0

[schedule]
kind = "constant"

[eval]
every = 0

[checkpoint]
every = 0

[log]
every = 1
tensorboard = false
"""
# Settings of the peer: options of its program, and its environment.
VARIANTS = {
    "as it comes": ([], {}),
    "plain": ([], KEEP_FREED_MEMORY),
    "true tokens, fused Adam": (["--true-tokens", "--fused"], KEEP_FREED_MEMORY),
    "packed, true tokens, fused Adam": (["--packed", "--true-tokens", "--fused"], KEEP_FREED_MEMORY),
    "fused Adam, compiled": (["--fused", "--compile"], KEEP_FREED_MEMORY),
    "true tokens, fused Adam, compiled": (["--true-tokens", "--fused", "--compile"], KEEP_FREED_MEMORY),
}
OF_EVALUATION = {
    "one after the other": ([], KEEP_FREED_MEMORY),
    "32 side by side": (["--together", "32"], KEEP_FREED_MEMORY),
    "32 side by side, true tokens": (["--together", "32", "--true-tokens"], KEEP_FREED_MEMORY),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, type=pathlib.Path)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--sentences", type=int, default=400, help="sentences of an evaluation")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only-as-public", action="store_true", help="evaluate one sentence after the other")
    parser.add_argument("--output", help="JSON file for every figure")
    args = parser.parse_args()
    binary, python = segue_binary(), peer_python("base")
    text = args.text.resolve()
    with tempfile.TemporaryDirectory() as folder:
        recipe, valid = pathlib.Path(folder, "recipe.toml"), pathlib.Path(folder, "valid.txt")
        recipe.write_text(RECIPE)
        valid.write_text("".join(text.read_text().splitlines(keepends=True)[: args.sentences]))
        corpus = f"{folder}/corpus"
        built = last_json([binary, "--json", "data", "build", "--preset", "sentences", "--tokenizer-kind", "word", "--train", str(text), "--valid", str(valid),
                           "--output", corpus])
        words = built["vocab_size"]
        program = [binary, "--json", "pretrain", "--config", str(recipe), f"data.corpus={corpus}", f"train.threads={args.threads}"]
        count = last_json([*program, "--dry-run", f"run.dir={folder}/dry"])["cost"]["parameters"]
        theirs = [python, str(ROOT / "tests/bench/latent_step.py"), "--text", str(text), "--vocabulary", str(words), "--samples", str(SAMPLES), "--batch", str(BATCH),
                  "--threads", str(args.threads)]

        def ours():
            run = tempfile.mkdtemp(dir=folder)
            last_json([*program, f"run.dir={run}/run", f"train.steps={WARMUP + args.steps}"])
            rows = [json.loads(line) for line in pathlib.Path(run, "run/metrics.jsonl").read_text().splitlines()]
            timed = [row["step_s"] for row in rows if row["kind"] == "train" and row["step"] > WARMUP]
            assert len(timed) == args.steps, f"{len(timed)} steps, expected {args.steps}"
            return {"steps_per_min": 60 * args.steps / sum(timed), "step_s": sum(timed) / args.steps}

        def evaluated():
            seconds = []
            for samples in (100, 1):
                began = time.perf_counter()
                last_json([binary, "--json", "eval", "latent", "--model", f"{folder}/model", "--samples", str(samples)], OMP_NUM_THREADS=str(args.threads))
                seconds.append(time.perf_counter() - began)
            # The second has the start of the program, and a hundredth of the work.
            return {"sentences_per_s": args.sentences / ((seconds[0] - seconds[1]) * 100 / 99), "command_s": seconds[0]}

        variants = OF_EVALUATION if args.evaluate else VARIANTS
        if args.only_as_public:
            variants = {"one after the other": OF_EVALUATION["one after the other"]}
        key, unit = ("sentences_per_s", "sentences/s") if args.evaluate else ("steps_per_min", "steps/min")
        options = ["--evaluate", "--sentences", str(args.sentences)] if args.evaluate else ["--steps", str(args.steps), "--warmup", str(WARMUP)]
        if args.evaluate:
            last_json([*program, f"run.dir={folder}/model", "train.steps=2"])

        def peer(variant):
            own, environment = variants[variant]
            found = last_json([*theirs, *options, *own], OMP_NUM_THREADS=str(args.threads), **environment)
            assert found["params"] == count, f"the peer has {found['params']} parameters, and ours {count}"
            return found

        best = fastest(variants, peer, key)
        summary = in_turn(evaluated if args.evaluate else ours, lambda: peer(best), key, unit, args.rounds)
    summary |= {"peer_settings": best, "parameters": count, "torch": summary["peer"][0]["torch"], "processor": processor(), "threads": args.threads}
    write(args.output, summary)


main()
