#!/usr/bin/env python3
"""A fine-tuning step of XLNet: Segue under mpirun next to Hugging Face's model under PyTorch DDP.

    python3 tests/bench/task_vs_peer.py [--rounds 8] [--batch 16] [--output FILE]

Both tell two classes apart in the same sizes on two ranks of one thread, clipping and update included, in turn: sequences of 128
tokens, 16 a rank (or --batch), none of them padded. The peer runs in this file: XLNetForSequenceClassification without memory, AdamW, at the fastest of
the settings in VARIANTS.
"""

import argparse
import json
import os
import statistics
import sys
import time

RANKS = 2
STEPS, WARMUP = 8, 2
# "kept": its allocator keeps freed memory, as ours does.
VARIANTS = ("as it comes", "kept", "kept, fused AdamW", "kept, compiled", "kept, fused AdamW, compiled")
SIZES = dict(layers=6, d_model=256, heads=4, d_inner=1024, vocab=32000, length=128, batch=int(os.environ.get("BATCH", 16)))


def peer():
    """One rank of the peer; prints a JSON line on rank 0."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from transformers import XLNetConfig, XLNetForSequenceClassification

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    config = XLNetConfig(vocab_size=SIZES["vocab"], d_model=SIZES["d_model"], n_layer=SIZES["layers"],
                         n_head=SIZES["heads"], d_inner=SIZES["d_inner"], dropout=0.1, use_mems_train=False,
                         num_labels=2)
    model = XLNetForSequenceClassification(config).train()
    # It has no part in fine-tuning; taken out of training, so that DDP need not look for it at every step.
    model.transformer.mask_emb.requires_grad_(False)
    variant = os.environ.get("VARIANT", "")
    parallel = DistributedDataParallel(model)
    if "compiled" in variant:
        parallel = torch.compile(parallel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, eps=1e-6, weight_decay=0.0, fused="fused" in variant)
    generator = torch.Generator().manual_seed(dist.get_rank())
    times, loss = [], None
    for step in range(WARMUP + STEPS):
        size = (SIZES["batch"], SIZES["length"])
        ids = torch.randint(0, SIZES["vocab"], size, generator=generator)
        segments = (torch.arange(SIZES["length"]) * 2 >= SIZES["length"]).long().expand(size)
        labels = torch.randint(0, 2, size[:1], generator=generator)
        dist.barrier()
        start = time.perf_counter()
        loss = parallel(input_ids=ids, token_type_ids=segments, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if step >= WARMUP:
            times.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        middle = statistics.median(times)
        print(json.dumps({"examples_per_s": RANKS * SIZES["batch"] / middle, "step_s": middle, "loss": value,
                          "params": sum(p.numel() for p in model.parameters())}))
    dist.destroy_process_group()


def main():
    from alternate import KEEP_FREED_MEMORY, ROUNDS, fastest, in_turn, last_json, mpirun, peer_python, segue_binary, write

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--batch", type=int, default=SIZES["batch"], help="examples a rank")
    parser.add_argument("--output", help="JSON file for every figure")
    args = parser.parse_args()
    SIZES["batch"] = args.batch
    print("# XLNet fine-tuning step, 2 ranks of 1 thread: " + " ".join(f"{k} {v}" for k, v in SIZES.items()) + " a rank")
    python = peer_python("base")
    options = [word for name, value in SIZES.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    ours = [*mpirun(RANKS), segue_binary(), "bench", "task", "--json", *options, "--steps", str(STEPS), "--warmup",
            str(WARMUP)]
    theirs = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), os.path.abspath(__file__)]
    settings = dict(OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore", BATCH=str(args.batch))

    def run_peer(variant):
        return last_json(theirs, VARIANT=variant, **settings, **(KEEP_FREED_MEMORY if "kept" in variant else {}))

    best = fastest(VARIANTS, run_peer, "examples_per_s")
    summary = in_turn(lambda: last_json(ours), lambda: run_peer(best), "examples_per_s", "examples/s", args.rounds)
    summary["peer_settings"] = best
    write(args.output, summary)


if "LOCAL_RANK" in os.environ:
    peer()
    sys.exit(0)
main()
