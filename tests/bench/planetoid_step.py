"""Steps of contexts as the public program of Planetoid makes them, written plainly in PyTorch.

    python planetoid_step.py FOLDER [--walks 200] [--steps 4] [--warmup 1] [--width 50]

A step takes the next starts of a random order of the nodes, walks 10 steps from each, lists every pair at most 3 apart, and lowers the sum of their
cross-entropies over all nodes by plain gradient descent. The last line is a JSON object with walks a second.
"""

import argparse
import json
import pathlib
import random
import time

import torch
from torch.nn import functional

LENGTH, WINDOW, RATE = 10, 3, 0.01


def neighbours(folder):
    lists = {}
    for line in pathlib.Path(folder, "graph.adj").read_text().splitlines():
        node, *others = map(int, line.split())
        lists[node] = others
    return lists


def batches(lists, walks):
    nodes = list(lists)
    while True:
        random.shuffle(nodes)
        for begin in range(0, len(nodes), walks):
            pairs = []
            for start in nodes[begin:begin + walks]:
                path = [start]
                for _ in range(LENGTH):
                    path.append(random.choice(lists[path[-1]]))
                for first in range(len(path)):
                    for second in range(max(first - WINDOW, 0), min(first + WINDOW + 1, len(path))):
                        pairs.append((path[first], path[second]))
            yield torch.tensor(pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    for name, value in (("walks", 200), ("steps", 4), ("warmup", 1), ("width", 50)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    random.seed(13)
    torch.manual_seed(13)
    torch.set_num_threads(1)
    lists = neighbours(args.folder)
    count = max(lists) + 1
    embedding = torch.nn.Embedding(count, args.width)
    contexts = torch.nn.Linear(args.width, count)
    torch.nn.init.normal_(embedding.weight, std=0.01)
    optimizer = torch.optim.SGD([*embedding.parameters(), *contexts.parameters()], lr=RATE)
    source = batches(lists, args.walks)
    for step in range(args.warmup + args.steps):
        if step == args.warmup:
            began = time.perf_counter()
        pairs = next(source)
        optimizer.zero_grad()
        functional.cross_entropy(contexts(embedding(pairs[:, 0])), pairs[:, 1], reduction="sum").backward()
        optimizer.step()
    seconds = time.perf_counter() - began
    print(json.dumps({"walks_per_s": args.walks * args.steps / seconds, "seconds": seconds, "steps": args.steps}))


main()
