#!/usr/bin/env python3
"""Losses and gradients of a complement GAN's turns in double precision, by plain PyTorch: golden numbers without a random one.

    python3 tests/peers/complement_gan_gradients.py golden.json

Writes golden.json, a JSON list of cases, and prints the same as lines of Rust. Networks have no noise and no dropout. Two kinds of them:

    layers          images [1, 3, 4], hidden [9, 7, 6], generator_hidden [8, 5], noise_size 4
    convolutional   images [3, 16, 16], filters [3, 4], generator_filters [8, 6, 5], noise_size 5

each with 5 classes and 12 images in groups of 6 or of 12. Images are in [0, 1]; convolutional networks map them to [-1, 1] inside.

Parameters, in their order; a layer of batch norm has no bias:

    discriminator.layers.{i}.{weight, bias}                      discriminator.output.{weight, bias, scale}
    generator.layers.{i}.{weight, norm.weight, norm.bias}        generator.output.{weight, bias, scale}
    encoder.layers.{i}.{weight, norm.weight, norm.bias}          encoder.output.{weight, bias, scale}

Weights of linear maps are [out, in], of convolutions [out, in, rows, columns], of transposed ones [in, out, rows, columns]. Value j of the flat
parameter number i of its network, both from 0, is s / 2, with s = sin(0.37 (j j) + 0.91 j + 1.7 i), summed from the left; of `scale` and `norm.weight`
it is 1 + s / 4. Tables that no step trains, discriminator.layers.{i}.scale, are made like `scale`, their i going on behind the parameters. Inputs are
(1 + s) / 2, with i = 0 for labelled images, 1 for others and 2 for z, the same in both turns; image number n has the label 3 n mod 5.

`loss` is a sum over examples: what is a mean of a group counts as often as the group has images.

    discriminator   labelled + real / 2 + fake / 2 + entropy / 10, over classes or classes-and-fake
    generator       feature matching by mean-square, mean-absolute or sum-square + pull-away / 2 + input entropy times `input_entropy`, of an encoder whose
                    second half of outputs is r in ln sigma = -softplus(r); features are those before the last layer

`gradients` has for each parameter that the turn trains [sum of g, sum of g_j cos(j), length of g].
"""

import json
import math
import re
import sys

import torch
from torch.nn import functional as F

CLASSES, COUNT = 5, 12
LEAST_SQUARE, EPSILON = 1e-6, 1e-5
LAYERS = dict(image=[1, 3, 4], hidden=[9, 7, 6], generator_hidden=[8, 5], noise_size=4)
CONVOLUTIONAL = dict(image=[3, 16, 16], filters=[3, 4], generator_filters=[8, 6, 5], noise_size=5)
# Stride, padding and, where it is transposed, output padding.
FALL, RISE = (2, 2), (2, 2, 1)


def sines(shape, i):
    count = math.prod(shape)
    return torch.tensor([math.sin(0.37 * (j * j) + 0.91 * j + 1.7 * i) for j in range(count)], dtype=torch.float64).view(shape)


def inputs(shape, i):
    return 0.5 + 0.5 * sines(shape, i)


class Network:
    """Parameters by name, and maps over them."""

    def __init__(self, name, shapes, tables=()):
        self.name, self.values = name, {}
        for i, (part, shape) in enumerate([*shapes, *tables]):
            ones = part.endswith(("scale", "norm.weight"))
            value = 1 + 0.25 * sines(shape, i) if ones else 0.5 * sines(shape, i)
            self.values[part] = value.requires_grad_(i < len(shapes))

    def trained(self):
        return {f"{self.name}.{part}": value for part, value in self.values.items() if value.requires_grad}

    def weight_normed(self, layer, x, form=None):
        weight, bias, scale = (self.values[f"{layer}.{part}"] for part in ("weight", "bias", "scale"))
        outputs = 1 if form and len(form) == 3 else 0
        own = [1] * weight.dim()
        own[outputs] = -1
        length = (weight.transpose(0, outputs).flatten(1) ** 2).sum(1) + LEAST_SQUARE
        return apply(x, weight * (scale / length.sqrt()).view(own), bias, form)

    def normed(self, layer, x, group, form=None):
        weight, gain, bias = (self.values[f"{layer}.{part}"] for part in ("weight", "norm.weight", "norm.bias"))
        parts = apply(x, weight, None, form).split(group)
        return torch.cat([F.batch_norm(part, None, None, gain, bias, training=True, eps=EPSILON) for part in parts])


def apply(x, weight, bias, form):
    if form is None:
        return F.linear(x, weight, bias)
    if len(form) == 3:
        return F.conv_transpose2d(x, weight, bias, form[0], form[1], form[2])
    return F.conv2d(x, weight, bias, *form)


def weight_normed_shapes(layer, shape, outputs=0, scale=True):
    units = [shape[outputs]]
    return [(f"{layer}.weight", shape), (f"{layer}.bias", units)] + [(f"{layer}.scale", units)] * scale


def normed_shapes(layer, shape, outputs=0):
    return [(f"{layer}.weight", shape), (f"{layer}.norm.weight", [shape[outputs]]), (f"{layer}.norm.bias", [shape[outputs]])]


def flat(lists):
    return [item for part in lists for item in part]


class Layers:
    """Networks of linear layers."""

    def __init__(self, image, hidden, generator_hidden, noise_size):
        pixels = math.prod(image)

        def pairs(*widths):
            return [[to, of] for of, to in zip(widths, widths[1:])]

        shapes = flat(weight_normed_shapes(f"layers.{i}", shape, scale=False) for i, shape in enumerate(pairs(pixels, *hidden)))
        tables = [(f"layers.{i}.scale", [units]) for i, units in enumerate(hidden)]
        self.discriminator = Network("discriminator", shapes + weight_normed_shapes("output", [CLASSES, hidden[-1]]), tables)
        shapes = flat(normed_shapes(f"layers.{i}", shape) for i, shape in enumerate(pairs(noise_size, *generator_hidden)))
        self.generator = Network("generator", shapes + weight_normed_shapes("output", [pixels, generator_hidden[-1]]))
        shapes = flat(normed_shapes(f"layers.{i}", shape) for i, shape in enumerate(pairs(pixels, *generator_hidden[::-1])))
        self.encoder = Network("encoder", shapes + weight_normed_shapes("output", [2 * noise_size, generator_hidden[0]]))
        self.depth, self.generator_depth = len(hidden), len(generator_hidden)

    def features(self, x):
        for i in range(self.depth):
            x = self.discriminator.weight_normed(f"layers.{i}", x).relu()
        return x

    def generate(self, x, group):
        for i in range(self.generator_depth):
            x = F.softplus(self.generator.normed(f"layers.{i}", x, group))
        return self.generator.weight_normed("output", x).sigmoid()

    def encode(self, x, group):
        for i in range(self.generator_depth):
            x = self.encoder.normed(f"layers.{i}", x, group).relu()
        return self.encoder.weight_normed("output", x)


class Convolutional:
    """Networks of convolutions."""

    def __init__(self, image, filters, generator_filters, noise_size):
        self.image, (fine, coarse), (a, b, c) = image, filters, generator_filters
        channels, self.rows, self.columns = image[0], image[1] // 8, image[2] // 8
        # Filters, rows of the kernel, stride and padding.
        self.convolutions = [(fine, 3, 1, 1), (fine, 3, 1, 1), (fine, 3, 2, 1), (coarse, 3, 1, 1), (coarse, 3, 1, 1), (coarse, 3, 2, 1),
                             (coarse, 3, 1, 0), (coarse, 1, 1, 0), (coarse, 1, 1, 0)]
        shapes, tables, of = [], [], channels
        for i, (to, kernel, _, _) in enumerate(self.convolutions):
            shapes += weight_normed_shapes(f"layers.{i}", [to, of, kernel, kernel], scale=False)
            tables.append((f"layers.{i}.scale", [to]))
            of = to
        self.discriminator = Network("discriminator", shapes + weight_normed_shapes("output", [CLASSES, coarse]), tables)
        values = a * self.rows * self.columns
        self.generator = Network("generator", [*normed_shapes("layers.0", [values, noise_size]), *normed_shapes("layers.1", [a, b, 5, 5], 1),
                                               *normed_shapes("layers.2", [b, c, 5, 5], 1), *weight_normed_shapes("output", [c, channels, 5, 5], 1)])
        self.encoder = Network("encoder", [*normed_shapes("layers.0", [c, channels, 5, 5]), *normed_shapes("layers.1", [b, c, 5, 5]),
                                           *normed_shapes("layers.2", [a, b, 5, 5]), *weight_normed_shapes("output", [2 * noise_size, values])])

    def places(self, x):
        return 2 * x.view(-1, *self.image) - 1

    def features(self, x):
        x = self.places(x)
        for i, (_, _, stride, padding) in enumerate(self.convolutions):
            x = F.leaky_relu(self.discriminator.weight_normed(f"layers.{i}", x, (stride, padding)), 0.2)
        return x.mean((2, 3))

    def generate(self, x, group):
        x = self.generator.normed("layers.0", x, group).relu().view(len(x), -1, self.rows, self.columns)
        for i in (1, 2):
            x = self.generator.normed(f"layers.{i}", x, group, RISE).relu()
        return (self.generator.weight_normed("output", x, RISE).tanh().flatten(1) + 1) / 2

    def encode(self, x, group):
        x = self.places(x)
        for i in range(3):
            x = self.encoder.normed(f"layers.{i}", x, group, FALL).relu()
        return self.encoder.weight_normed("output", x.flatten(1))


def discriminator_loss(model, batch, group, entropy_over):
    labelled, labels, real, z = batch
    with torch.no_grad():
        fake = model.generate(z, group)
    # The class of fakes has the logit 0.
    logits = [model.discriminator.weight_normed("output", model.features(x)) for x in (labelled, real, fake)]
    of_real, of_fake = (F.pad(x, (0, 1)).log_softmax(1) for x in logits[1:])
    over = logits[1].log_softmax(1) if entropy_over == "classes" else of_real[:, :CLASSES]
    return (F.cross_entropy(logits[0], labels, reduction="sum") - 0.5 * of_real[:, :CLASSES].logsumexp(1).sum() - 0.5 * of_fake[:, CLASSES].sum()
            - 0.1 * (over.exp() * over).sum())


def generator_loss(model, batch, group, distance, input_entropy):
    _, _, real, z = batch
    made = model.generate(z, group)
    of_real, of_made = (model.features(x).split(group) for x in (real, made))
    loss = 0
    for a, b in zip(of_made, of_real):
        apart = a.mean(0) - b.mean(0)
        loss = loss + group * {"mean-square": apart.square().mean, "mean-absolute": apart.abs().mean, "sum-square": apart.square().sum}[distance]()
        cosines = F.cosine_similarity(a[:, None], a[None], dim=2)
        others = ~torch.eye(group, dtype=torch.bool)
        loss = loss + 0.5 * group * cosines[others].square().mean()
    if input_entropy > 0:
        mean, raw = model.encode(made, group).chunk(2, 1)
        std = torch.exp(-F.softplus(raw))
        loss = loss + input_entropy * (std.log() + ((z - mean) / std).square() / 2).sum()
    return loss


def case(kind, sizes, group, turn, **settings):
    model = {"layers": Layers, "convolutional": Convolutional}[kind](**sizes)
    pixels = math.prod(sizes["image"])
    labels = torch.tensor([3 * image % CLASSES for image in range(COUNT)])
    batch = inputs([COUNT, pixels], 0), labels, inputs([COUNT, pixels], 1), inputs([COUNT, sizes["noise_size"]], 2)
    of = {"discriminator": discriminator_loss, "generator": generator_loss}[turn]
    loss = of(model, batch, group, *settings.values())
    trained = model.discriminator.trained() if turn == "discriminator" else model.generator.trained()
    if settings.get("input_entropy"):
        trained |= model.encoder.trained()
    gradients = {}
    for name, gradient in zip(trained, torch.autograd.grad(loss, list(trained.values()))):
        flattened = gradient.flatten()
        weights = torch.arange(flattened.numel(), dtype=torch.float64).cos()
        gradients[name] = [flattened.sum().item(), (flattened * weights).sum().item(), flattened.norm().item()]
    return dict(network=kind, group=group, turn=turn, **settings, loss=loss.item(), gradients=gradients)


def literal(value):
    """A number of Rust with 13 digits, by threes."""
    mantissa, exponent = f"{value:.12e}".split("e")
    whole, digits = mantissa.split(".")
    return f"{whole}.{'_'.join(re.findall('...', digits))}e{int(exponent)}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    turns = [dict(turn="discriminator", entropy_over=over) for over in ("classes", "classes-and-fake")]
    turns += [dict(turn="generator", distance=distance, input_entropy=0.0) for distance in ("mean-square", "mean-absolute", "sum-square")]
    turns.append(dict(turn="generator", distance="mean-square", input_entropy=0.1))
    cases = [case(kind, sizes, group, **turn)
             for kind, sizes in (("layers", LAYERS), ("convolutional", CONVOLUTIONAL)) for group in (6, COUNT) for turn in turns]
    with open(sys.argv[1], "w") as file:
        json.dump(cases, file, indent=1)
        file.write("\n")
    for found in cases:
        settings = ", ".join(f"{key} {value}" for key, value in found.items() if key not in ("loss", "gradients"))
        print(f"// {settings}\n({literal(found['loss'])}, &[")
        for name, sums in found["gradients"].items():
            print(f'    ("{name}", [{", ".join(map(literal, sums))}]),')
        print("]),")


main()
