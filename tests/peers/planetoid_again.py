#!/usr/bin/env python3
"""Planetoid-T and -G a second time, with gradients by hand, to hold the accuracies of segue against (benchmarks/2026-11-two-cores.md, "Nodes of graphs").

    planetoid_again.py FOLDER [--graph-only] [--seed N] [options]

FOLDER is a graph as text, as `segue data graph ... --text FOLDER` writes it. Ends with a line of JSON: accuracy on the test nodes, in
percent, after the last supervised step (`last`) and the best of any 50th one (`best`, chosen by the test nodes). Defaults are the public
program's settings for Citeseer; those of the tables are --walks 140 --walk-rate 0.005 --no-self. Needs NumPy and PyTorch, on one thread.
"""
import argparse
import json
import pathlib

import numpy as np
import torch

HOPS, WINDOW, STARTS, LABEL_PAIRS = 10, 3, 200, 100
# Anchors whose scores of all contexts are in memory at once.
ROWS = 128


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--graph-only", action="store_true", help="Planetoid-G: no features")
    parser.add_argument("--no-self", action="store_true", help="no node is a context of itself at the same place of a walk")
    parser.add_argument("--labels", type=int, default=2000, help="steps of contexts by labels (%(default)s)")
    parser.add_argument("--walks", type=int, default=70, help="steps of contexts by walks, after those (%(default)s)")
    parser.add_argument("--walk-rate", type=float, default=0.01, help="rate of both (%(default)s)")
    parser.add_argument("--steps", type=int, default=1500, help="supervised steps (%(default)s)")
    parser.add_argument("--rate", type=float, default=0.1, help="their rate (%(default)s)")
    parser.add_argument("--width", type=int, default=50, help="of the embedding (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class Graph:
    def __init__(self, folder, with_features):
        rows = [line.split() for line in (folder / "graph.adj").read_text().splitlines()]
        lists = {int(node): [int(other) for other in others] for node, *others in rows}
        self.nodes = max(max([node, *others]) for node, others in lists.items()) + 1
        lists = [lists.get(node, []) for node in range(self.nodes)]
        self.degrees = np.array([len(others) for others in lists])
        self.offsets = np.concatenate([[0], np.cumsum(self.degrees)])
        self.neighbours = np.array([other for others in lists for other in others])
        whole = lambda name: np.array([int(word) for word in (folder / name).read_text().split()])
        self.train, self.test, self.labels = whole("train.index"), whole("test.index"), whole("labels.txt")
        self.classes = self.labels.max() + 1
        self.features = {}
        for line in (folder / "features.svm").read_text().splitlines() if with_features else []:
            node, *entries = line.split()
            self.features[int(node)] = [(int(c), float(x)) for c, x in (entry.split(":") for entry in entries)]
        self.columns = max((column + 1 for row in self.features.values() for column, _ in row), default=0)

    def dense(self, nodes):
        x = torch.zeros(len(nodes), self.columns)
        for row, node in enumerate(nodes):
            for column, value in self.features[node]:
                x[row, column] = value
        return x

    def walk_pairs(self, draw, no_self):
        """Without end: the pairs of up to STARTS walks, from each node in an order that is drawn before from any again."""
        places = np.array([(j, k) for j in range(HOPS + 1) for k in range(HOPS + 1) if abs(j - k) <= WINDOW and not (no_self and j == k)])
        while True:
            order = draw.permutation(self.nodes)
            for first in range(0, self.nodes, STARTS):
                at = order[first:first + STARTS]
                walk = [at[self.degrees[at] > 0]]
                for _ in range(HOPS):
                    at = walk[-1]
                    walk.append(self.neighbours[self.offsets[at] + draw.integers(0, self.degrees[at])])
                yield np.stack(walk, 1)[:, places].reshape(-1, 2)

    def label_pairs(self, draw):
        """Without end: labelled nodes, each with one of its class."""
        classes = [self.train[self.labels[self.train] == label] for label in range(self.classes)]
        sizes = np.array([len(members) for members in classes])
        table = np.stack([np.resize(members, max(sizes)) for members in classes])
        while True:
            anchors = self.train[draw.integers(0, len(self.train), LABEL_PAIRS)]
            label = self.labels[anchors]
            yield np.stack([anchors, table[label, (draw.random(LABEL_PAIRS) * sizes[label]).astype(int)]], 1)


def glorot(rows, columns, draw):
    return (torch.rand(rows, columns, generator=draw) * 2 - 1) * (6 / (rows + columns)) ** 0.5


class Contexts:
    """Embeddings [n, width], and for each node as a context a column of weights and a bias."""

    def __init__(self, nodes, width, draw):
        self.embedding = torch.randn(nodes, width, generator=draw) * 0.01
        self.weights, self.biases = glorot(width, nodes, draw), torch.zeros(nodes)

    def step(self, pairs, rate):
        """Plain descent on the sum over (anchor, context) of -ln softmax(e W + b)[context]; equal pairs are counted, scores made by anchor."""
        nodes = len(self.biases)
        keys, counts = np.unique(pairs[:, 0] * nodes + pairs[:, 1], return_counts=True)
        anchors, place = np.unique(keys // nodes, return_inverse=True)
        totals = torch.from_numpy(np.bincount(place, weights=counts)).float()[:, None]
        anchors, place, context = (torch.from_numpy(x) for x in (anchors, place, keys % nodes))
        counts = torch.from_numpy(counts).float()
        e = self.embedding[anchors]
        of_e, of_weights, of_biases = torch.empty_like(e), torch.zeros_like(self.weights), torch.zeros_like(self.biases)
        for rows in torch.arange(len(e)).split(ROWS):
            chances = torch.addmm(self.biases, e[rows], self.weights).softmax(1)
            of_e[rows] = chances @ self.weights.t() * totals[rows]
            of_weights.addmm_((e[rows] * totals[rows]).t(), chances)
            of_biases.addmv_(chances.t(), totals[rows, 0])
        # What the pairs themselves take off.
        of_e.index_add_(0, place, self.weights.t()[context] * counts[:, None], alpha=-1)
        of_weights.t().index_add_(0, context, e[place] * counts[:, None], alpha=-1)
        of_biases.index_add_(0, context, counts, alpha=-1)
        self.embedding.index_add_(0, anchors, of_e, alpha=-rate)
        self.weights.sub_(of_weights, alpha=rate)
        self.biases.sub_(of_biases, alpha=rate)


class Layer:
    def __init__(self, rows, columns, draw):
        self.weights, self.biases = glorot(rows, columns, draw), torch.zeros(columns)

    def __call__(self, x):
        return (x @ self.weights + self.biases).softmax(1)

    def descend(self, x, gradient, rate):
        """A step by the gradient of the scores; returns that of `x`, by the weights of before."""
        of_x = gradient @ self.weights.t()
        self.weights -= rate * (x.t() @ gradient)
        self.biases -= rate * gradient.sum(0)
        return of_x


class Classifier:
    """A softmax of the embedding; in T, of a softmax of the features beside one of the embedding, each with a cross-entropy of its own."""

    def __init__(self, graph, width, draw):
        classes, self.of_features = graph.classes, None
        if graph.columns:
            self.of_features, self.of_embedding = Layer(graph.columns, classes, draw), Layer(width, classes, draw)
        self.top = Layer(2 * classes if graph.columns else width, classes, draw)

    def classes_of(self, x, e):
        if self.of_features:
            e = torch.cat([self.of_features(x), self.of_embedding(e)], 1)
        return self.top(e).argmax(1)

    def step(self, x, e, expected, rate):
        """Over all labelled nodes, whose embeddings `e` it moves too."""
        error = lambda chances: (chances - expected) / len(expected)
        if not self.of_features:
            e -= rate * self.top.descend(e, error(self.top(e)), rate)
            return
        parts = [self.of_features(x), self.of_embedding(e)]
        hidden = torch.cat(parts, 1)
        below = self.top.descend(hidden, error(self.top(hidden)), rate).chunk(2, 1)
        scores = [h * (g - (h * g).sum(1, keepdim=True)) + error(h) for h, g in zip(parts, below)]
        self.of_features.descend(x, scores[0], rate)
        e -= rate * self.of_embedding.descend(e, scores[1], rate)


def main():
    options = arguments()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    graph = Graph(options.folder, not options.graph_only)
    pairs, weights = np.random.default_rng(options.seed), torch.Generator().manual_seed(options.seed)
    contexts = Contexts(graph.nodes, options.width, weights)
    for source, steps in [(graph.label_pairs(pairs), options.labels), (graph.walk_pairs(pairs, options.no_self), options.walks)]:
        for _ in range(steps):
            contexts.step(next(source), options.walk_rate)

    classifier = Classifier(graph, options.width, weights)
    x, x_of_test = (graph.dense(nodes) if graph.columns else None for nodes in (graph.train, graph.test))
    e, e_of_test = contexts.embedding[graph.train], contexts.embedding[graph.test]
    label, label_of_test = (torch.from_numpy(graph.labels[nodes]) for nodes in (graph.train, graph.test))
    expected = torch.nn.functional.one_hot(label, int(graph.classes)).float()
    last, best = 0.0, (0.0, 0)
    for step in range(1, options.steps + 1):
        classifier.step(x, e, expected, options.rate)
        if step % 50 == 0 or step == options.steps:
            right = classifier.classes_of(x_of_test, e_of_test) == label_of_test
            last = round(100 * right.double().mean().item(), 1)
            best = max(best, (last, -step))
    print(json.dumps({"folder": str(options.folder), "seed": options.seed, "last": last, "best": best[0], "best_at": -best[1]}))


if __name__ == "__main__":
    main()
