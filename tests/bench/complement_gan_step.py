#!/usr/bin/env python3
"""Steps of a complement GAN as the public program defines them, in today's PyTorch. complement_gan_vs_peer.py starts it.

    python3 tests/bench/complement_gan_step.py [--convolutional] [--batch 100] [--pairs 50] [--warmup 10] [--fused] [--compile] [--channels-last]

A pair is a step of the discriminator, on labelled, other and generated images at once, and one of the generator, by feature matching on other images of
the data. Networks and rates are those for MNIST, or with --convolutional those for CIFAR-10, with its encoder. Products are in single precision. Images
are random ones in memory: what they show does not change the time. The last line is a JSON object with pairs a minute and the number of parameters.
"""

import argparse
import copy
import json
import resource
import time

import torch
from torch import nn
from torch.nn import functional as F

CLASSES, NOISE = 10, 100


class WeightNormed(nn.Module):
    """A linear map or a convolution, whose weights have a direction and a length; hidden layers do not train the latter."""

    def __init__(self, shape, form=None, trains_scale=False):
        super().__init__()
        self.form, self.outputs = form, 1 if form and "output_padding" in form else 0
        units = shape[self.outputs]
        self.weight, self.bias = nn.Parameter(torch.randn(shape) * 0.05), nn.Parameter(torch.zeros(units))
        if trains_scale:
            self.scale = nn.Parameter(torch.ones(units))
        else:
            self.register_buffer("scale", torch.ones(units))

    def forward(self, x):
        others = [axis for axis in range(self.weight.dim()) if axis != self.outputs]
        factors = self.scale / (torch.linalg.vector_norm(self.weight, dim=others).square() + 1e-6).sqrt()
        if self.form is None:
            # There are fewer outputs than weights.
            return torch.addcmul(self.bias, F.linear(x, self.weight), factors)
        own = [1] * self.weight.dim()
        own[self.outputs] = -1
        convolve = F.conv_transpose2d if self.outputs else F.conv2d
        return convolve(x, self.weight * factors.view(own), self.bias, **self.form)


class Noise(nn.Module):
    def __init__(self, std):
        super().__init__()
        self.std = std

    def forward(self, x):
        return x + self.std * torch.randn_like(x)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


class Discriminator(nn.Module):
    """Features are those before the last noise."""

    def __init__(self, features, output):
        super().__init__()
        self.features, self.output = nn.Sequential(*features), output

    def forward(self, x):
        return self.output(self.features(x))


def layers():
    """Discriminator and generator for MNIST."""
    widths, features = [784, 1000, 500, 250, 250, 250], []
    for index, (of, to) in enumerate(zip(widths, widths[1:])):
        features += [Noise(0.5 if index else 0.3), WeightNormed([to, of]), nn.ReLU()]
    discriminator = Discriminator(features, nn.Sequential(Noise(0.5), WeightNormed([CLASSES, widths[-1]], trains_scale=True)))
    generator, widths = [], [NOISE, 500, 500]
    for of, to in zip(widths, widths[1:]):
        generator += [nn.Linear(of, to, bias=False), nn.BatchNorm1d(to), nn.Softplus()]
    generator += [WeightNormed([784, widths[-1]], trains_scale=True), nn.Sigmoid()]
    return discriminator, nn.Sequential(*generator), None


def convolutions():
    """Discriminator, generator and encoder for CIFAR-10."""
    fine, coarse = 96, 192
    forms = [(fine, 3, 1, 1), (fine, 3, 1, 1), (fine, 3, 2, 1), (coarse, 3, 1, 1), (coarse, 3, 1, 1), (coarse, 3, 2, 1),
             (coarse, 3, 1, 0), (coarse, 1, 1, 0), (coarse, 1, 1, 0)]
    features, of = [Noise(0.05), nn.Dropout2d(0.2)], 3
    for index, (to, kernel, stride, padding) in enumerate(forms):
        features += [nn.Dropout(0.5)] * (index in (3, 6))
        features += [WeightNormed([to, of, kernel, kernel], dict(stride=stride, padding=padding)), nn.LeakyReLU(0.2)]
        of = to
    discriminator = Discriminator([*features, Mean()], WeightNormed([CLASSES, coarse], trains_scale=True))
    rise, fall = dict(stride=2, padding=2, output_padding=1), dict(stride=2, padding=2, bias=False)
    generator = [nn.Linear(NOISE, 512 * 16, bias=False), nn.BatchNorm1d(512 * 16), nn.ReLU(), nn.Unflatten(1, (512, 4, 4))]
    for of, to in ((512, 256), (256, 128)):
        generator += [nn.ConvTranspose2d(of, to, 5, bias=False, **rise), nn.BatchNorm2d(to), nn.ReLU()]
    generator += [WeightNormed([128, 3, 5, 5], rise, trains_scale=True), nn.Tanh()]
    encoder = []
    for of, to in ((3, 128), (128, 256), (256, 512)):
        encoder += [nn.Conv2d(of, to, 5, **fall), nn.BatchNorm2d(to), nn.ReLU()]
    encoder += [nn.Flatten(), WeightNormed([2 * NOISE, 512 * 16], trains_scale=True)]
    return discriminator, nn.Sequential(*generator), nn.Sequential(*encoder)


class Pair:
    """A step of each player."""

    def __init__(self, a):
        self.discriminator, self.generator, self.encoder = players = convolutions() if a.convolutional else layers()
        players = [player.train() for player in players if player]
        if a.channels_last:
            players = [player.to(memory_format=torch.channels_last) for player in players]
        # The generator's loss goes through the same values, without gradients of them.
        memo = {id(value): value.detach() for value in self.discriminator.parameters()}
        self.frozen = copy.deepcopy(self.discriminator, memo)
        self.count = sum(value.numel() for player in players for value in player.parameters())
        rates, beta2 = ((6e-4, 3e-4, 3e-4), 0.999) if a.convolutional else ((3e-3, 1e-3), 0.9999)
        groups = [dict(params=list(player.parameters()), lr=rate) for player, rate in zip(players, rates)]
        kind = dict(fused=True) if a.fused else dict(foreach=True)
        self.of_discriminator = torch.optim.Adam(groups[:1], betas=(0.5, beta2), **kind)
        self.of_generator = torch.optim.Adam(groups[1:], betas=(0.0, beta2), **kind)
        self.losses = self.discriminator_loss, self.generator_loss
        if a.compile:
            self.losses = tuple(torch.compile(loss, dynamic=False) for loss in self.losses)

    def discriminator_loss(self, labelled, labels, real, z):
        with torch.no_grad():
            fake = self.generator(z)
        of_labelled, of_real, of_fake = self.discriminator(torch.cat([labelled, real, fake])).chunk(3)
        unsupervised = F.softplus(-of_real.logsumexp(1)).mean() + F.softplus(of_fake.logsumexp(1)).mean()
        return F.cross_entropy(of_labelled, labels) + 0.5 * unsupervised

    def generator_loss(self, real, z):
        with torch.no_grad():
            of_real = self.frozen.features(real).mean(0)
        made = self.generator(z)
        apart = self.frozen.features(made).mean(0) - of_real
        if self.encoder is None:
            return apart.square().mean()
        mean, raw = self.encoder(made).chunk(2, 1)
        log_std = -F.softplus(raw)
        return apart.abs().mean() + 0.01 * (log_std + ((z - mean) * torch.exp(-log_std)).square() / 2).sum(1).mean()

    def step(self, labelled, labels, real, other):
        for loss, optimizer, batch in ((self.losses[0], self.of_discriminator, (labelled, labels, real)),
                                       (self.losses[1], self.of_generator, (other,))):
            loss(*batch, torch.rand(len(real), NOISE)).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def batches(images, size):
    """Batches in random orders of all of `images`."""
    while True:
        yield from (images[order] for order in torch.randperm(len(images)).split(size) if len(order) == size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convolutional", action="store_true", help="the networks for CIFAR-10")
    for name, value in (("batch", 100), ("pairs", 50), ("warmup", 10), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--fused", action="store_true", help="take the fused kernel of Adam")
    parser.add_argument("--compile", action="store_true", help="compile both losses")
    parser.add_argument("--channels-last", action="store_true", help="keep channels next to each other")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    pair = Pair(a)
    images = torch.rand(20 * a.batch, *([3, 32, 32] if a.convolutional else [784]))
    if a.convolutional:
        images = 2 * images - 1
    if a.channels_last:
        images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, [len(images)])
    labelled, real, other = batches(torch.arange(len(images)), a.batch), batches(images, a.batch), batches(images, a.batch)
    for number in range(a.warmup + a.pairs):
        if number == a.warmup:
            began = time.perf_counter()
        own = next(labelled)
        pair.step(images[own], labels[own], next(real), next(other))
    seconds = time.perf_counter() - began
    print(json.dumps(dict(pairs_per_min=60 * a.pairs / seconds, pair_s=seconds / a.pairs, params=pair.count, torch=torch.__version__,
                          peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)))


main()
