#!/usr/bin/env python3
"""One rank of a step of torch.nn.Transformer that translates, under DDP where there are several ranks. translation_vs_peer.py starts it.

    python3 -m torch.distributed.run --nproc-per-node 2 tests/bench/translation_step.py --batches FILE [options]

Norms after sums and none at the ends, dropout of embeddings and of what sublayers give alone, one table of words for both languages and the softmax, sines and
cosines of positions, label smoothing, Adam: as Segue's recipe has it. FILE has a JSON list: for each
step a batch for each rank, with sources, inputs and targets, padded. Prints one JSON line: target tokens per second of all ranks over all timed steps, and the number
of parameters.
"""

import argparse
import json
import os
import resource
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    """The mean smoothed loss of the targets of a batch."""

    def __init__(self, a):
        super().__init__()
        self.width, self.pad = a.width, a.pad
        self.table = nn.Embedding(a.vocab, a.width)
        nn.init.normal_(self.table.weight, std=a.width ** -0.5)
        self.transformer = nn.Transformer(a.width, a.heads, a.layers, a.layers, a.inner, a.dropout, batch_first=True)
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        for layer in [*self.transformer.encoder.layers, *self.transformer.decoder.layers]:
            layer.dropout = nn.Identity()
        for part in self.modules():
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0
        self.dropout = nn.Dropout(a.dropout)
        angles = torch.arange(512)[:, None] / 10_000 ** (torch.arange(0, a.width, 2) / a.width)
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1))

    def embed(self, ids):
        return self.dropout(self.table(ids) * self.width ** 0.5 + self.positions[:ids.shape[1]])

    def forward(self, source, inputs, targets):
        hidden = source == self.pad
        mask = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1])
        states = self.transformer(self.embed(source), self.embed(inputs), tgt_mask=mask, src_key_padding_mask=hidden, memory_key_padding_mask=hidden,
                                  tgt_is_causal=True)
        # Scores of what is padding are not made.
        kept = targets != self.pad
        scores = F.linear(states[kept], self.table.weight)
        return F.cross_entropy(scores, targets[kept], label_smoothing=0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", required=True)
    for name in ("layers", "width", "heads", "inner", "vocab", "pad"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--dropout", type=float, required=True)
    parser.add_argument("--warmup", type=int, default=2, help="steps before those that are timed")
    parser.add_argument("--fused", action="store_true", help="take the fused kernel of Adam")
    parser.add_argument("--compile", action="store_true", help="compile the model, for any lengths")
    a = parser.parse_args()
    torch.set_num_threads(1)
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Model(a).train()
    stepped = DistributedDataParallel(model) if world > 1 else model
    if a.compile:
        stepped = torch.compile(stepped, dynamic=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=a.fused)
    with open(a.batches) as file:
        batches = json.load(file)
    # A compiled model has seen all its shapes once before it is timed.
    order = [*range(len(batches)), *range(len(batches))] if a.compile else [*range(a.warmup), *range(len(batches))]
    timed, tokens = 0.0, 0
    for number, step in enumerate(order):
        own = batches[step][rank]
        source, inputs, targets = (torch.tensor(own[name]) for name in ("source", "inputs", "targets"))
        if world > 1:
            dist.barrier()
        began = time.perf_counter()
        loss = stepped(source, inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if number >= len(order) - len(batches):
            timed += time.perf_counter() - began
            tokens += sum(sum(lane["target_lengths"]) for lane in batches[step])
    if rank == 0:
        print(json.dumps(dict(tokens_per_s=tokens / timed, seconds=timed, params=sum(p.numel() for p in model.parameters()),
                              peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)))
    if world > 1:
        dist.destroy_process_group()


main()
