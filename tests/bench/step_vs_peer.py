#!/usr/bin/env python3
"""The training step of Transformer-XL or XLNet: Segue under mpirun next to Hugging Face's or NVIDIA's model under PyTorch DDP.

    python3 tests/bench/step_vs_peer.py transfoxl|xlnet|wide [--d-model 512] [--rounds 8] [--output FILE]
    python3 tests/bench/step_vs_peer.py nvidia --peer CODE

Both run the same sizes on two ranks of one thread, update and clipping included, in turn, and meet at a barrier before each timed step. A
step of `wide` is one of a Transformer-XL over 267,735 words, adaptive in input and output, with words drawn by Zipf's law. A step of XLNet is one of pre-training: two streams, an order of each half, memory of reused length, predictions at 85 of 512 positions; tokens/s
counts all 512. The peer runs at the fastest of the settings in VARIANTS. The peer's program is
train_peer.py, looked for beside the checkout (../shared/peers) or at --peer; NVIDIA's model is that of CODE, the folder
PyTorch/LanguageModeling/Transformer-XL/pytorch of its DeepLearningExamples.
"""

import argparse
import pathlib

from alternate import KEEP_FREED_MEMORY, ROOT, ROUNDS, fastest, in_turn, last_json, mpirun, peer_python, segue_binary, skip, write

RANKS = 2
STEPS, WARMUP = 8, 2
SIZES = dict(layers=6, d_model=256, heads=4, d_inner=1024, vocab=8000)
WIDE = dict(layers=4, d_model=512, heads=8, d_inner=2048, vocab=267_735)
# Sizes of a step, and the peer's environment of scripts/peers.sh.
TRANSFORMER_XL = dict(name="Transformer-XL", segment=128, memory=128, batch=8, ours=[])
MODELS = {
    "transfoxl": dict(TRANSFORMER_XL, python="transfoxl", theirs=["transfoxl"]),
    "wide": dict(TRANSFORMER_XL, name="Transformer-XL over 267,735 words", python="transfoxl", theirs=["transfoxl"], sizes=WIDE,
                 wrapper="wide_step.py", ours=["--zipf", "model.cutoffs=[20000,40000,200000]", "model.div_val=4"]),
    "nvidia": dict(TRANSFORMER_XL, python="base", theirs=[]),
    "xlnet": dict(name="XLNet", segment=512, memory=384, batch=4, python="base",
                  ours=["--model", "xlnet", "--reuse", "256", "--predict", "85"],
                  theirs=["xlnet", "--reuse", "256", "--predict", "85", "--halves"]),
}
# Settings of the peer: options of its program, and its environment. Its allocator keeps freed memory, as ours does, but in the first.
VARIANTS = {
    "as it comes": ([], {}),
    "plain": ([], KEEP_FREED_MEMORY),
    "fused Adam": (["--fused"], KEEP_FREED_MEMORY),
    "compiled": (["--compile"], KEEP_FREED_MEMORY),
    "fused Adam, compiled": (["--fused", "--compile"], KEEP_FREED_MEMORY),
}


def options(sizes):
    return [word for name, value in sizes.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def sizes_of(setup, d_model):
    """Sizes of the model of `setup`, at another width where one is given: heads of 64, and layers four times as wide inside."""
    sizes = setup.get("sizes", SIZES)
    return {**sizes, "d_model": d_model, "heads": d_model // 64, "d_inner": 4 * d_model} if d_model else sizes


def step_gflop(model, sizes):
    """Matrix products of one rank's step in GFLOP, as Segue's dry run counts what it computes."""
    xlnet = ["model.model_type=xlnet", "model.reuse_len=256", "pairs.num_predict=85"]
    setup = MODELS[model]
    kind = xlnet if model == "xlnet" else ["model.model_type=transfo-xl", *(word for word in setup["ours"] if "=" in word)]
    found = last_json([segue_binary(), "pretrain", "--dry-run", "--json", *kind,
                       f"model.n_layer={sizes['layers']}", f"model.d_model={sizes['d_model']}",
                       f"model.n_head={sizes['heads']}", f"model.d_inner={sizes['d_inner']}",
                       f"model.vocab_size={sizes['vocab']}", f"model.mem_len={setup['memory']}",
                       f"train.segment={setup['segment']}", f"train.lanes={setup['batch']}",
                       f"train.micro_batch={setup['batch']}"])
    per_token = found["cost"]["training_flops_per_token"]["least"]
    return per_token * setup["batch"] * setup["segment"] / 1e9


def machine_gflops():
    """Matrix products of RANKS processes at once, by the fastest library at hand: what a step competes for."""
    return last_json([*mpirun(RANKS), segue_binary(), "bench", "products", "--json"])["best_gflops"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--d-model", type=int, help="another width; heads and inner width go with it")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--output", help="JSON file for every figure")
    parser.add_argument("--peer", default=str(ROOT.parent / "shared/peers/train_peer.py"))
    args = parser.parse_args()
    setup = MODELS[args.model]
    sizes = sizes_of(setup, args.d_model)
    segment, memory, batch = setup["segment"], setup["memory"], setup["batch"]
    print(f"# {setup['name']} training step, 2 ranks of 1 thread: " + " ".join(f"{k} {v}" for k, v in sizes.items())
          + f" segment {segment} memory {memory} batch {batch} a rank")
    program = [*([str(ROOT / "tests/bench" / setup["wrapper"])] if "wrapper" in setup else []), args.peer]
    if args.model == "nvidia":
        program = [str(ROOT / "tests/bench/nvidia_step.py"), args.peer]
        if not pathlib.Path(args.peer, "mem_transformer.py").is_file():
            skip("there is no mem_transformer.py in --peer; see --help")
    elif not pathlib.Path(args.peer).is_file():
        skip(f"the peer's program is not at {args.peer}")
    python = peer_python(setup["python"])
    timing = dict(steps=STEPS, warmup=WARMUP)
    ours = [*mpirun(RANKS), segue_binary(), "bench", "step", "--json", *setup["ours"],
            *options({**sizes, "segment": segment, "mem": memory, "micro_batch": batch, **timing})]
    theirs = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), *program,
              *setup["theirs"], *options({**sizes, "seq": segment, "mem": memory, "batch": batch, **timing})]
    settings = dict(OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")

    def run_peer(variant):
        options, environment = VARIANTS[variant]
        return last_json([*theirs, *options], **settings, **environment)

    best = fastest(VARIANTS, run_peer, "tokens_per_s")
    gemm = [machine_gflops()]
    peaks = {}

    def with_peak(whose, figures):
        peaks[whose] = max(peaks.get(whose, 0), figures.get("peak_rss_mb", 0))
        return figures

    summary = in_turn(lambda: with_peak("segue", last_json(ours)), lambda: with_peak("peer", run_peer(best)),
                      "tokens_per_s", "tokens/s", args.rounds)
    summary["peer_settings"] = best
    # Before and after, and the higher of the two: a machine that others slow down meanwhile flatters nobody.
    gemm, work = max([*gemm, machine_gflops()]), step_gflop(args.model, sizes) * RANKS
    tokens = RANKS * batch * segment
    if peaks["peer"]:
        print(f"peak memory of rank 0: {peaks['segue']:.0f} MB, the peer's {peaks['peer']:.0f} MB")
        summary["segue_peak_mb"], summary["peer_peak_mb"] = peaks["segue"], peaks["peer"]
    summary["machine_gemm_gflops"], summary["step_gflop"] = gemm, work
    summary["segue_gemm_share"] = work * summary["segue_median"] / tokens / gemm
    print(f"machine: {gemm:.0f} GFLOP/s of matrix products in {RANKS} processes by the fastest library; a step's are {work:.0f} GFLOP, "
          f"so Segue runs at {summary['segue_gemm_share']:.0%} of that limit")
    write(args.output, summary)


main()
