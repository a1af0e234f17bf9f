#!/usr/bin/env python3
"""The training step of a translator: Segue under mpirun next to torch.nn.Transformer under DDP, over the same batches of a corpus.

    python3 tests/bench/translation_vs_peer.py --corpus DIR [--rounds 5] [--steps 20] [--output FILE]

Two ranks of one thread with a batch each a step: 3 and 3 layers of width 256, 2,048 tokens a side, label smoothing, dropout, Adam, no clipping. The corpus is that of
configs/recipes/translation-multi30k.toml. Figures are target tokens over the time of all timed steps; the peer runs at the fastest of the settings in VARIANTS,
and makes no scores of padding either.
"""

import argparse
import json
import pathlib
import tempfile

from alternate import KEEP_FREED_MEMORY, ROOT, fastest, in_turn, last_json, mpirun, peer_python, segue_binary, write

RANKS, WARMUP = 2, 2
RECIPE = "configs/recipes/translation-multi30k.toml"
VARIANTS = {
    "as it comes": ([], {}),
    "plain": ([], KEEP_FREED_MEMORY),
    "fused Adam": (["--fused"], KEEP_FREED_MEMORY),
    "fused Adam, compiled": (["--fused", "--compile"], KEEP_FREED_MEMORY),
}


def vocabulary_of(corpus):
    """Tokens of the corpus' vocabulary; padding comes after them."""
    return json.loads(pathlib.Path(corpus, "corpus.json").read_text())["vocab_size"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--output", help="JSON file for every figure")
    args = parser.parse_args()
    binary, python = segue_binary(), peer_python("base")
    recipe = ["--config", RECIPE, f"data.corpus={args.corpus}"]
    lane = [binary, "--json", "inspect", "batch", *recipe]
    batches = [[last_json([*lane, "--step", str(step), "--lane", str(rank)]) for rank in range(RANKS)]
               for step in range(WARMUP + 1, WARMUP + 1 + args.steps)]
    tokens = sum(sum(own["target_lengths"]) for step in batches for own in step)
    print(f"# a translator's step: {args.steps} steps of {RANKS} batches, {tokens / args.steps:.0f} target tokens a step")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "batches.json")
        file.write_text(json.dumps(batches))
        dry = last_json([binary, "--json", "pretrain", "--dry-run", *recipe, f"run.dir={folder}/dry"])
        model = last_json([binary, "--json", "pretrain", "--print-config", *recipe])["model"]
        vocabulary = vocabulary_of(args.corpus)
        sizes = dict(layers=model["encoder_layers"], width=model["d_model"], heads=model["encoder_attention_heads"], inner=model["encoder_ffn_dim"],
                     vocab=vocabulary + 1, pad=vocabulary, dropout=model["dropout"])

        def ours():
            run = tempfile.mkdtemp(dir=folder)
            last_json([*mpirun(RANKS), binary, "--json", "pretrain", *recipe, f"run.dir={run}/run", f"train.steps={WARMUP + args.steps}", "eval.every=0",
                       "checkpoint.every=0", "log.every=1", "log.tensorboard=false"])
            rows = [json.loads(line) for line in pathlib.Path(run, "run/metrics.jsonl").read_text().splitlines()]
            rows = [row for row in rows if row["kind"] == "train"][WARMUP:]
            return {"tokens_per_s": tokens / sum(row["step_s"] for row in rows)}

        theirs = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), str(ROOT / "tests/bench/translation_step.py"), "--batches", str(file),
                  *(word for name, value in sizes.items() for word in (f"--{name}", str(value)))]

        def peer(variant):
            options, environment = VARIANTS[variant]
            found = last_json([*theirs, *options], OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore", **environment)
            assert found["params"] == dry["cost"]["parameters"], f"the peer has {found['params']} parameters, and ours {dry['parameters']}"
            return found

        best = fastest(VARIANTS, peer, "tokens_per_s")
        summary = in_turn(ours, lambda: peer(best), "tokens_per_s", "target tokens/s", args.rounds)
    summary |= {"peer_settings": best, "parameters": dry["cost"]["parameters"], "target_tokens_a_step": tokens / args.steps}
    write(args.output, summary)


main()
