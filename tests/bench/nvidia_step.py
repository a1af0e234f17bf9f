#!/usr/bin/env python3
"""One rank of the training step of NVIDIA's Transformer-XL under PyTorch DDP; prints a JSON line on rank 0. step_vs_peer.py starts it.

    python3 -m torch.distributed.run --nproc-per-node 2 tests/bench/nvidia_step.py CODE [options]

CODE is the folder PyTorch/LanguageModeling/Transformer-XL/pytorch of NVIDIA's DeepLearningExamples. Its model is used as it is; weights are
drawn from a normal distribution, as its training program does, and Adam makes the update.
"""

import argparse
import json
import statistics
import sys
import time
import unittest.mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("code")
    for name in ("layers", "d_model", "heads", "d_inner", "vocab", "seq", "mem", "batch", "steps", "warmup"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, required=True)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    sys.path.insert(0, args.code)
    # A logger and a view of GPUs, which its modules import and the model does without.
    for name in ("dllogger", "pynvml"):
        sys.modules[name] = unittest.mock.MagicMock()
    from mem_transformer import MemTransformerLM

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = MemTransformerLM(args.vocab, args.layers, args.heads, args.d_model, args.d_model // args.heads, args.d_inner,
                             args.dropout, 0.0, torch.float32, tgt_len=args.seq, ext_len=0, mem_len=args.mem).train()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 or "r_w_bias" in name or "r_r_bias" in name:
            torch.nn.init.normal_(parameter, 0.0, 0.02)
    parallel = DistributedDataParallel(model)
    if args.compile:
        parallel = torch.compile(parallel)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=args.fused)
    generator = torch.Generator().manual_seed(dist.get_rank())
    memory, times, value = None, [], None
    for step in range(args.warmup + args.steps):
        ids = torch.randint(0, args.vocab, (args.seq + 1, args.batch), generator=generator)
        dist.barrier()
        start = time.perf_counter()
        losses, memory = parallel(ids[:-1], ids[1:], memory)
        loss = losses.mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if step >= args.warmup:
            times.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        middle = statistics.median(times)
        tokens = dist.get_world_size() * args.batch * args.seq
        print(json.dumps({"tokens_per_s": tokens / middle, "step_s": middle, "loss": value,
                          "params": sum(p.numel() for p in model.parameters())}))
    dist.destroy_process_group()


main()
