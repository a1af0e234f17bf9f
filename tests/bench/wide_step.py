#!/usr/bin/env python3
"""One rank of a step of Hugging Face's Transformer-XL over a large vocabulary under PyTorch DDP. step_vs_peer.py starts it.

    python3 -m torch.distributed.run --nproc-per-node 2 tests/bench/wide_step.py PEER transfoxl [options of PEER]

PEER is train_peer.py, which makes the step. In its model the softmax and the input are adaptive, with the clusters of WikiText-103's
267,735 words; words are drawn by Zipf's law, as `segue bench step --zipf` draws them. The JSON line holds the peak memory of rank 0 too.
"""

import importlib.util
import json
import math
import resource
import sys

import torch

CLUSTERS = dict(cutoffs=[20_000, 40_000, 200_000], div_val=4)


def load(path):
    spec = importlib.util.spec_from_file_location("train_peer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(args):
    from transformers import TransfoXLConfig, TransfoXLLMHeadModel
    return TransfoXLLMHeadModel(TransfoXLConfig(
        vocab_size=args.vocab, d_model=args.d_model, d_embed=args.d_model, n_head=args.heads, d_head=args.d_model // args.heads,
        d_inner=args.d_inner, n_layer=args.layers, mem_len=args.mem, dropout=args.dropout, dropatt=0.0, same_length=False, clamp_len=-1,
        adaptive=True, **CLUSTERS))


def zipf(low, high, size, generator):
    """Word k with a probability in proportion to 1/(k + 1)."""
    fraction = torch.rand(size, generator=generator, dtype=torch.float64)
    return (fraction * math.log1p(high)).expm1().long().clamp(low, high - 1)


def main():
    peer = load(sys.argv.pop(1))
    lines = []
    peer.build, peer.torch.randint, peer.print = build, zipf, lines.append
    peer.main()
    for line in lines:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**json.loads(line), "peak_rss_mb": peak}))


main()
