#!/usr/bin/env python3
"""One rank of a step of a recurrent language model in PyTorch, under DDP where there are several. recurrent_vs_peer.py starts it.

    python3 -m torch.distributed.run --nproc-per-node 2 tests/bench/recurrent_step.py lstm|mogrifier|rewired [options]

`lstm` is torch.nn.LSTM; the others are loops over positions, as one writes them down from the paper: the products of inputs that nothing
changes on their way are made for all positions at once. Input and output share their embeddings. Prints one JSON line: tokens per second
of all ranks, the median step and the number of parameters.
"""

import argparse
import json
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Mogrifier(nn.Module):
    """Gates that input (m wide) and state (n wide) open for each other in turn, of matrices of some rank; 0 for whole ones."""

    def __init__(self, m, n, rounds, rank):
        super().__init__()
        sides = [(m, n) if number % 2 == 0 else (n, m) for number in range(rounds)]
        self.gates = nn.ModuleList(
            nn.Sequential(nn.Linear(into, rank, bias=False), nn.Linear(rank, out)) if rank else nn.Linear(into, out)
            for out, into in sides)

    def forward(self, x, h):
        for number, gate in enumerate(self.gates):
            if number % 2 == 0:
                x = 2 * torch.sigmoid(gate(h)) * x
            else:
                h = 2 * torch.sigmoid(gate(x)) * h
        return x, h


class MogrifierLstm(nn.Module):
    """A layer of LSTM cells, capped as the paper's are, behind a mogrifier."""

    def __init__(self, m, n, rounds, rank):
        super().__init__()
        self.mogrifier = Mogrifier(m, n, rounds, rank)
        self.read, self.carry = nn.Linear(m, 4 * n), nn.Linear(n, 4 * n, bias=False)

    def forward(self, inputs, h, c):
        outputs = []
        for x in inputs.unbind(0):
            x, seen = self.mogrifier(x, h)
            f, j, o, i = (self.read(x) + self.carry(seen)).chunk(4, dim=1)
            f = torch.sigmoid(f)
            c = f * c + torch.minimum(torch.sigmoid(i), 1 - f) * torch.tanh(j)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs), h, c


class Rewired(nn.Module):
    """A layer of rewired LSTM cells."""

    def __init__(self, m, n):
        super().__init__()
        self.read, self.carry = nn.Linear(m, 2 * n), nn.Linear(n, 3 * n, bias=False)
        self.written, self.shown = nn.Linear(n, n), nn.Linear(n, n)

    def forward(self, inputs, h, c):
        n = h.shape[1]
        outputs = []
        for read in self.read(inputs).unbind(0):
            carried = self.carry(h)
            i, j = (read + carried[:, :2 * n]).chunk(2, dim=1)
            i, j = torch.sigmoid(i), torch.tanh(j)
            f = torch.sigmoid(self.written(i * j) + carried[:, 2 * n:])
            c = f * c + torch.minimum(i, 1 - f) * j
            h = torch.sigmoid(self.shown(c)) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs), h, c


class Model(nn.Module):
    """Embeddings, layers, and scores by the embeddings; the loss of a segment and the state after it."""

    def __init__(self, a):
        super().__init__()
        n = a.width
        self.embedding = nn.Embedding(a.vocab, n)
        self.bias = nn.Parameter(torch.zeros(a.vocab))
        self.kind = a.kind
        if a.kind == "lstm":
            self.layers = nn.LSTM(n, n, a.layers)
        else:
            layer = (lambda: MogrifierLstm(n, n, a.rounds, a.rank)) if a.kind == "mogrifier" else (lambda: Rewired(n, n))
            self.layers = nn.ModuleList(layer() for _ in range(a.layers))
        nn.init.normal_(self.embedding.weight, std=n ** -0.5)

    def forward(self, ids, targets, state):
        x = self.embedding(ids)
        if self.kind == "lstm":
            x, state = self.layers(x, state)
        else:
            after = []
            for layer, h, c in zip(self.layers, *state):
                x, h, c = layer(x, h, c)
                after.append((h, c))
            state = tuple(torch.stack(part) for part in zip(*after))
        scores = F.linear(x.flatten(0, 1), self.embedding.weight, self.bias)
        return F.cross_entropy(scores, targets.flatten()), state


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["lstm", "mogrifier", "rewired"])
    for name, default in dict(layers=2, width=650, vocab=10_000, segment=70, batch=20, rounds=5, rank=0, steps=8, warmup=2).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--fused", action="store_true", help="take the fused kernel of Adam")
    parser.add_argument("--compile", action="store_true", help="compile the model, unrolled over positions")
    a = parser.parse_args()
    torch.set_num_threads(1)
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Model(a)
    stepped = DistributedDataParallel(model) if world > 1 else model
    if a.compile:
        stepped = torch.compile(stepped)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=a.fused)
    generator = torch.Generator().manual_seed(rank)
    state = tuple(torch.zeros(a.layers, a.batch, a.width) for _ in range(2))
    times = []
    for number in range(a.warmup + a.steps):
        text = torch.randint(0, a.vocab, (a.segment + 1, a.batch), generator=generator)
        if world > 1:
            dist.barrier()
        began = time.perf_counter()
        loss, state = stepped(text[:-1], text[1:], state)
        state = tuple(part.detach() for part in state)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if number >= a.warmup:
            times.append(time.perf_counter() - began)
    if rank == 0:
        step = statistics.median(times)
        print(json.dumps(dict(tokens_per_s=world * a.batch * a.segment / step, step_s=step,
                              params=sum(p.numel() for p in model.parameters()),
                              peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)))
    if world > 1:
        dist.destroy_process_group()


main()
