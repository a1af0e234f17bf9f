#!/usr/bin/env python3
"""The training step of Transformer-XL: Segue under mpirun next to Hugging Face's model under PyTorch DDP.

    python3 tests/bench/step_vs_peer.py [--rounds 5] [--output FILE]

Both run the same sizes on two ranks of one thread, update and clipping included, in turn. The peer's program is
train_peer.py, looked for beside the checkout (../shared/peers) or at --peer.
"""

import argparse
import json
import pathlib
import subprocess

from alternate import ROOT, ROUNDS, in_turn, last_json, mpirun, peer_python, segue_binary, skip, write

RANKS = 2
STEPS, WARMUP = 8, 2
SIZES = dict(layers=6, d_model=256, heads=4, d_inner=1024, vocab=8000)
SEGMENT, MEMORY, BATCH = 128, 128, 8
# Times two ranks multiplying matrices at once, which is what a step competes for.
GEMM = """
import json, time, torch
torch.set_num_threads(1)
n = 1536
a, b = torch.randn(n, n), torch.randn(n, n)
speeds, begun = [], time.perf_counter()
while (start := time.perf_counter()) < begun + 4:
    a @ b
    speeds.append(2 * n**3 / (time.perf_counter() - start) / 1e9)
print(json.dumps({"gflops": sorted(speeds)[len(speeds) // 2]}))
"""


def options(sizes):
    return [word for name, value in sizes.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def step_gflop():
    """Matrix products of one rank's step in GFLOP: three times the forward pass (spec 1.1, 1.2)."""
    layers, d, inner, vocab = (SIZES[name] for name in ("layers", "d_model", "d_inner", "vocab"))
    keys = SEGMENT + MEMORY
    per_sequence = (
        2 * SEGMENT * d * d  # queries
        + 2 * keys * d * 2 * d  # keys and values
        + 2 * 2 * SEGMENT * keys * d  # content and position scores
        + 2 * SEGMENT * keys * d  # weighted values
        + 2 * SEGMENT * d * d  # output projection
        + 2 * SEGMENT * d * inner * 2  # feed-forward
    )
    positions = 2 * keys * d * d  # once for all sequences
    softmax = 2 * SEGMENT * BATCH * d * vocab
    return 3 * (layers * (BATCH * per_sequence + positions) + softmax) / 1e9


def machine_gflops(python):
    """Sum of the matrix-product speed of RANKS processes of one thread running at the same time."""
    processes = [subprocess.Popen([python, "-c", GEMM], stdout=subprocess.PIPE, text=True) for _ in range(RANKS)]
    return sum(json.loads(process.communicate()[0])["gflops"] for process in processes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--output", help="JSON file for every figure")
    parser.add_argument("--peer", default=str(ROOT.parent / "shared/peers/train_peer.py"))
    args = parser.parse_args()
    print("# Transformer-XL training step, 2 ranks of 1 thread: " + " ".join(f"{k} {v}" for k, v in SIZES.items())
          + f" segment {SEGMENT} memory {MEMORY} batch {BATCH} a rank")
    if not pathlib.Path(args.peer).is_file():
        skip(f"the peer's program is not at {args.peer}")
    python = peer_python("transfoxl")
    timing = dict(steps=STEPS, warmup=WARMUP)
    ours = [*mpirun(RANKS), segue_binary(), "bench", "step", "--json",
            *options({**SIZES, "segment": SEGMENT, "mem": MEMORY, "micro_batch": BATCH, **timing})]
    theirs = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), args.peer, "transfoxl",
              *options({**SIZES, "seq": SEGMENT, "mem": MEMORY, "batch": BATCH, **timing})]
    summary = in_turn(lambda: last_json(ours), lambda: last_json(theirs, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore"),
                      "tokens_per_s", "tokens/s", args.rounds)
    gemm, work = machine_gflops(python), step_gflop() * RANKS
    tokens = RANKS * BATCH * SEGMENT
    summary["machine_gemm_gflops"], summary["step_gflop"] = gemm, work
    for who in ("segue", "peer"):
        summary[f"{who}_gemm_share"] = work * summary[f"{who}_median"] / tokens / gemm
    print(f"machine: {gemm:.0f} GFLOP/s of matrix products in {RANKS} processes; a step's are {work:.0f} GFLOP, "
          f"so Segue runs at {summary['segue_gemm_share']:.0%} of that limit, the peer at {summary['peer_gemm_share']:.0%}")
    write(args.output, summary)


main()
