#!/usr/bin/env python3
"""The training step of recurrent language models: Segue under mpirun next to PyTorch under DDP.

    python3 tests/bench/recurrent_vs_peer.py [lstm] [mogrifier] [rewired] [cost] [--rounds 8] [--output FILE]

Both train the same model (2 layers of 650 over 10,000 words, tied, Adam, clipping) on two ranks of one thread with 20 lanes of 70 tokens
each, in turn, and meet at a barrier before each timed step. The peer of `lstm` is torch.nn.LSTM, that of the others a loop over positions
(recurrent_step.py). `cost` is Segue alone: the rewired LSTM next to the LSTM, with the same number of parameters. All where none is named.
"""

import argparse
import pathlib
import tempfile

from alternate import KEEP_FREED_MEMORY, ROOT, ROUNDS, fastest, in_turn, last_json, mpirun, peer_python, segue_binary, write

RANKS = 2
STEPS, WARMUP = 8, 2
LAYERS, WIDTH, WORDS, SEGMENT, LANES = 2, 650, 10_000, 70, 20
ROUNDS_OF_GATES = 5
RANK = 84
# About what the LSTM of these sizes has.
BUDGET = 13_280_000
# Keys of the model, and options of the peer.
MODELS = {
    "lstm": (dict(input_gate="plain"), ["lstm"]),
    "mogrifier": (dict(mogrifier_rounds=ROUNDS_OF_GATES, mogrifier_rank=RANK),
                  ["mogrifier", "--rounds", str(ROUNDS_OF_GATES), "--rank", str(RANK)]),
    "rewired": (dict(cell="rewired"), ["rewired"]),
}
# Settings of the peer: options of its program, and its environment. A loop over 70 positions is not worth waiting for to be compiled.
VARIANTS = {
    "as it comes": ([], {}),
    "plain": ([], KEEP_FREED_MEMORY),
    "fused Adam": (["--fused"], KEEP_FREED_MEMORY),
}
COMPILED = {"fused Adam, compiled": (["--fused", "--compile"], KEEP_FREED_MEMORY)}


def recipe(folder, name, **keys):
    """A recipe of the race's sizes with other keys of the model."""
    keys = dict(model_type="lstm", vocab_size=WORDS, d_model=WIDTH, n_layer=LAYERS) | keys
    path = pathlib.Path(folder, f"{name}.toml")
    lines = [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in keys.items()]
    path.write_text("\n".join(["[model]", *lines, "[train]", f"segment = {SEGMENT}", f"lanes = {RANKS * LANES}"]) + "\n")
    return str(path)


def step(path):
    """One run of our step."""
    return last_json([*mpirun(RANKS), segue_binary(), "bench", "step", "--json", "--config", path, "--micro-batch", str(LANES),
                      "--steps", str(STEPS), "--warmup", str(WARMUP)])


def race(name, folder, python, rounds):
    keys, kind = MODELS[name]
    path = recipe(folder, name, **keys)
    sizes = dict(layers=LAYERS, width=WIDTH, vocab=WORDS, segment=SEGMENT, batch=LANES, steps=STEPS, warmup=WARMUP)
    theirs = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), str(ROOT / "tests/bench/recurrent_step.py"), *kind,
              *(word for size, value in sizes.items() for word in (f"--{size}", str(value)))]
    variants = VARIANTS | (COMPILED if name == "lstm" else {})

    def peer(variant):
        options, environment = variants[variant]
        return last_json([*theirs, *options], OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore", **environment)

    best = fastest(variants, peer, "tokens_per_s")
    summary = in_turn(lambda: step(path), lambda: peer(best), "tokens_per_s", "tokens/s", rounds)
    summary["peer_settings"] = best
    return summary


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*MODELS, "cost", []])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--output", help="JSON file for every figure")
    args = parser.parse_args()
    summaries = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.what or [*MODELS, "cost"]:
            print(f"# {name}: {LAYERS} layers of {WIDTH}, {WORDS} words, 2 ranks of 1 thread with {LANES} lanes of {SEGMENT}")
            if name == "cost":
                pair = [recipe(folder, cell, cell=cell, parameters=BUDGET) for cell in ("lstm", "rewired")]
                # A ratio of seconds: how much longer the rewired one takes.
                summaries[name] = in_turn(lambda: step(pair[0]), lambda: step(pair[1]), "tokens_per_s", "tokens/s", args.rounds)
            else:
                summaries[name] = race(name, folder, peer_python("base"), args.rounds)
    write(args.output, {f"{name}_{key}": value for name, summary in summaries.items() for key, value in summary.items()})


main()
