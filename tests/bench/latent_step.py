#!/usr/bin/env python3
"""Steps and evaluation of a sentence model with normal latent variables in today's PyTorch. latent_vs_peer.py starts it.

    python3 tests/bench/latent_step.py --text FILE --vocabulary N [--samples 16] [--batch 32] [--steps 50] [--evaluate] [--fused] [--compile]
        [--packed] [--true-tokens] [--expanded]

A step raises the bound of importance-weighted autoencoders by doubly reparametrised gradients (Burda et al. 2016; Tucker et al. 2018): one pass, with a hook that weighs
the gradient of each sample. An evaluation bounds the likelihood of the first sentences by 100 samples each, one sentence after the other, as public programs have
it; with --together as many sentences side by side. Words are numbered as they come, modulo the vocabulary. The last line is a JSON object.
"""

import argparse
import json
import math
import resource
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

EMBED, ENCODER, DECODER, LATENTS = 128, 128, 128, 40
INPUT_DROPOUT, OUTPUT_DROPOUT = 0.1, 0.2
LOG_TAU = math.log(2 * math.pi)


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.read = nn.Embedding(a.vocabulary, EMBED)
        self.encoder = nn.LSTM(EMBED, ENCODER, batch_first=True, bidirectional=True)
        self.posterior = nn.Linear(ENCODER, 2 * LATENTS)
        self.written = nn.Embedding(a.vocabulary, EMBED)
        self.decoder = nn.LSTM(EMBED + LATENTS, DECODER, batch_first=True)
        self.output = nn.Linear(DECODER, a.vocabulary)

    def count(self):
        """Without the second bias of each gate, which adds nothing to the first."""
        return sum(value.numel() for name, value in self.named_parameters() if "bias_hh" not in name)

    def encode(self, ids, lengths):
        packed = pack_padded_sequence(self.read(ids), lengths, batch_first=True, enforce_sorted=False)
        _, (last, _) = self.encoder(packed)
        return self.posterior(last.mean(0)).chunk(2, 1)

    def likelihood(self, ids, lengths, z, trains):
        """ln p(x | z), [sentences, samples]."""
        rows, samples, _ = z.shape
        positions = ids.shape[1]
        # A sentence begins behind the end of another, whose number is 0.
        words = self.written(F.pad(ids[:, :-1], (1, 0)))
        own = words.unsqueeze(1).expand(-1, samples, -1, -1)
        x = torch.cat([own, z.unsqueeze(2).expand(-1, -1, positions, -1)], 3)
        # All samples of a sentence have the same masks.
        mask = lambda like, rate: torch.empty(rows, 1, positions, like.shape[-1]).bernoulli_(1 - rate) / (1 - rate)
        if trains:
            x = x * mask(x, INPUT_DROPOUT)
        x = x.reshape(rows * samples, positions, -1)
        if self.a.packed:
            each = lengths.repeat_interleave(samples)
            states, _ = self.decoder(pack_padded_sequence(x, each, batch_first=True, enforce_sorted=False))
            states, _ = pad_packed_sequence(states, batch_first=True)
        else:
            states, _ = self.decoder(x)
        if trains:
            states = (states.view(rows, samples, positions, -1) * mask(states, OUTPUT_DROPOUT)).view(rows * samples, positions, -1)
        is_there = torch.arange(positions) < lengths.unsqueeze(1)
        targets = ids.unsqueeze(1).expand(-1, samples, -1).reshape(rows * samples, positions)
        if self.a.true_tokens:
            there = is_there.repeat_interleave(samples, 0)
            losses = F.cross_entropy(self.output(states[there]), targets[there], reduction="none")
            rows_of = torch.arange(rows * samples).unsqueeze(1).expand(-1, positions)[there]
            return -torch.zeros(rows * samples).index_add(0, rows_of, losses).view(rows, samples)
        losses = F.cross_entropy(self.output(states).flatten(0, 1), targets.flatten(), reduction="none")
        return -(losses.view(rows, samples, positions) * is_there.unsqueeze(1)).sum(2)

    def loss(self, ids, lengths):
        mean, log_variance = self.encode(ids, lengths)
        noise = torch.randn(len(ids), self.a.samples, LATENTS)
        z = mean.unsqueeze(1) + (log_variance / 2).exp().unsqueeze(1) * noise
        ratio = ratio_of(z, mean.detach(), log_variance.detach())
        bound = self.likelihood(ids, lengths, z, True) + ratio
        weights = bound.detach().softmax(1)
        z.register_hook(lambda gradient: gradient * weights.unsqueeze(2))
        return -(weights * bound).sum(1).mean()

    @torch.no_grad()
    def bound(self, ids, lengths, samples):
        mean, log_variance = self.encode(ids, lengths)
        z = mean.unsqueeze(1) + (log_variance / 2).exp().unsqueeze(1) * torch.randn(len(ids), samples, LATENTS)
        return (self.likelihood(ids, lengths, z, False) + ratio_of(z, mean, log_variance)).logsumexp(1) - math.log(samples)


def ratio_of(z, mean, log_variance):
    """ln p(z) − ln q(z | x), [sentences, samples]."""
    mean, log_variance = mean.unsqueeze(1), log_variance.unsqueeze(1)
    prior = -0.5 * (z.square() + LOG_TAU).sum(2)
    return prior + 0.5 * ((z - mean).square() * (-log_variance).exp() + log_variance + LOG_TAU).sum(2)


def sentences(path, vocabulary):
    """Ids of each line, its end among them."""
    numbers = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            words = line.split()[:34]
            if words:
                yield [1 + numbers.setdefault(word, len(numbers)) % (vocabulary - 1) for word in words] + [0]


def side_by_side(rows):
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows]), torch.tensor([len(row) for row in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    for name, value in (("vocabulary", 0), ("samples", 16), ("batch", 32), ("steps", 50), ("warmup", 10), ("threads", 2), ("sentences", 200), ("together", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--evaluate", action="store_true", help="bound likelihoods by 100 samples")
    parser.add_argument("--fused", action="store_true", help="take the fused kernel of Adam")
    parser.add_argument("--compile", action="store_true", help="compile the loss")
    parser.add_argument("--packed", action="store_true", help="the decoder reads packed sequences")
    parser.add_argument("--true-tokens", action="store_true", help="tokens of padding have no logits")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    all_of_them = list(sentences(a.text, a.vocabulary))
    model = Model(a)
    told = dict(params=model.count(), torch=torch.__version__)
    if a.evaluate:
        rows = sorted(all_of_them[: a.sentences], key=len) if a.together > 1 else all_of_them[: a.sentences]
        began = time.perf_counter()
        bounds = [model.bound(*side_by_side(rows[at : at + a.together]), 100) for at in range(0, len(rows), a.together)]
        seconds = time.perf_counter() - began
        told |= dict(sentences_per_s=len(rows) / seconds, bound=torch.cat(bounds).mean().item())
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.0, 0.999), **(dict(fused=True) if a.fused else dict(foreach=True)))
        loss = torch.compile(model.loss, dynamic=True) if a.compile else model.loss
        order = torch.randperm(len(all_of_them)).tolist()
        for step in range(a.warmup + a.steps):
            if step == a.warmup:
                began = time.perf_counter()
            own = [all_of_them[order[(step * a.batch + at) % len(order)]] for at in range(a.batch)]
            loss(*side_by_side(own)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - began
        told |= dict(steps_per_min=60 * a.steps / seconds, step_s=seconds / a.steps)
    print(json.dumps(told | dict(peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)))


main()
