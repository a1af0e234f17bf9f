#!/usr/bin/env python3
"""Trains Hugging Face's TransfoXLLMHeadModel the way Segue trains its own, to compare the quality reached.

    $(scripts/peers.sh python transfoxl) tests/peers/train_transfoxl.py \\
        --config merged.toml --corpus CORPUS --seeds 1,2,3 [key=value ...]

The same tokens, sizes, lanes, segments, memory, optimizer, clipping, schedule and number of steps; only the random
numbers differ (initial weights, dropout). One JSON line a seed on stdout, then one with the mean over the seeds.

--config is a Segue configuration with every key: what `segue pretrain --print-config` prints. `key=value` overrides it with the
dotted names of the file. --corpus is a folder that `segue data build` wrote, its shards not compressed.
"""

import argparse
import json
import math
import statistics
import sys
import time
import tomllib
import warnings

warnings.filterwarnings("ignore", category=FutureWarning)
try:
    import numpy as np
    import torch
    from transformers import TransfoXLConfig, TransfoXLLMHeadModel
except ImportError as error:
    print(f"{error}: run scripts/peers.sh, then this script with the interpreter it names", file=sys.stderr)
    sys.exit(2)


# ---- configuration -------------------------------------------------------------------------------------------

def read_config(path, overrides):
    with open(path, "rb") as file:
        config = tomllib.load(file)
    for override in overrides:
        key, _, value = override.partition("=")
        *sections, name = key.split(".")
        table = config
        for section in sections:
            table = table.setdefault(section, {})
        try:
            table[name] = tomllib.loads(f"v = {value}")["v"]
        except tomllib.TOMLDecodeError:
            table[name] = value  # a bare word is a string, as on Segue's command line
    return config


def build_model(model, vocab_size):
    """A freshly initialised model of the sizes in the section `model`."""
    assert model["memory_start"] == "zeros", "this package's memory starts as zeros"
    assert model["same_length_keys"] == "mem_len" and model["adaptive"], "not what this package computes"
    same_names = ("cutoffs d_model n_head d_inner div_val pre_lnorm n_layer mem_len clamp_len same_length dropout "
                  "dropatt untie_r init init_range init_std proj_init_std layer_norm_epsilon "
                  "proj_share_all_but_first tie_word_embeddings").split()
    config = TransfoXLConfig(
        vocab_size=vocab_size,
        d_embed=model["d_embed"] or model["d_model"],
        d_head=model["d_head"] or model["d_model"] // model["n_head"],
        **{name: model[name] for name in same_names},
    )
    if model.get("tie_projs"):
        config.tie_projs = model["tie_projs"]
    return TransfoXLLMHeadModel(config)


# ---- data ----------------------------------------------------------------------------------------------------

SHARD_HEADER_BYTES = 64  # docs/book/src/formats/corpus.md


def read_split(corpus, info, split):
    """All token ids of one split, its shards joined in order."""
    shards = info["splits"][split]["shards"]
    if any(shard["compressed"] for shard in shards):
        sys.exit(f"{corpus}: compressed shards; build the corpus without compression for this comparison")
    width = {"u16": "<u2", "u32": "<u4"}[info["dtype"]]
    parts = [np.fromfile(f"{corpus}/{split}/{shard['file']['name']}", dtype=width, offset=SHARD_HEADER_BYTES)
             for shard in shards]
    tokens = np.concatenate(parts).astype(np.int64)
    assert len(tokens) == info["splits"][split]["tokens"], f"{corpus}: the shards of {split} are not whole"
    return torch.from_numpy(tokens)


class Lanes:
    """`lanes` contiguous pieces of equal length; the targets of a segment are its tokens moved on by one.

    A lane that has no whole segment left begins its piece again, with memory as at the start.
    """

    def __init__(self, tokens, lanes, segment):
        self.length = len(tokens) // lanes
        self.pieces = tokens[: lanes * self.length].view(lanes, self.length)
        self.segment = segment
        self.at = 0
        assert self.length > segment, "a lane is too short for one segment"

    def next(self):
        """Inputs and targets [lanes, segment], and whether the pieces begin (again) with them."""
        if self.at + self.segment + 1 > self.length:
            self.at = 0
        start, end = self.at, self.at + self.segment
        self.at = end
        return self.pieces[:, start:end], self.pieces[:, start + 1 : end + 1], start == 0


# ---- training ------------------------------------------------------------------------------------------------

def summed_loss(model, inputs, targets, mems):
    """Sum of the negative log-likelihoods of all `targets` [batch, time], and the memory after `inputs`.

    The package's own loss drops the last position of every segment: it pairs position t with label t + 1. One
    position and one label of padding, which fall away by that shift, keep all of them.
    """
    out = model.transformer(inputs, mems=mems)
    hidden = torch.nn.functional.pad(out.last_hidden_state, (0, 0, 0, 1))
    labels = torch.nn.functional.pad(targets, (1, 0))
    return model.crit(hidden, labels).sum(), out.mems


def learning_rate(config, step):
    """Of update `step`, counted from 1: linear warm-up, then the schedule's decay."""
    schedule, peak = config["schedule"], config["optim"]["lr"]
    warmup, floor, kind = schedule["warmup"], schedule["floor"], schedule["kind"]
    if step < warmup:
        return peak * step / warmup
    start = warmup if schedule["decay_from"] == "warmup" else 0
    whole = max((schedule["steps"] or config["train"]["steps"]) - start, 1)
    progress = min(max(step - start, 0) / whole, 1.0)
    if kind == "cosine":
        return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))
    if kind == "linear":
        return peak * (floor + (1 - floor) * (1 - progress))
    share = 1.0 if kind == "constant" else math.sqrt(max(warmup, 1) / max(step, 1))
    return peak * max(share, floor)


def build_optimizer(model, optim):
    exempt, decayed = [], []
    for name, parameter in model.named_parameters():
        (exempt if any(part in name for part in optim["no_decay"]) else decayed).append(parameter)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optim["kind"]]
    groups = [dict(params=decayed, weight_decay=optim["weight_decay"]), dict(params=exempt, weight_decay=0.0)]
    return kind(groups, lr=optim["lr"], betas=(optim["beta1"], optim["beta2"]), eps=optim["eps"])


def train(model, config, tokens, log_every):
    """Runs `train.steps` updates. Returns the mean loss of the last one, in nats a token."""
    settings, optim = config["train"], config["optim"]
    lanes = Lanes(tokens, settings["lanes"], settings["segment"])
    optimizer = build_optimizer(model, optim)
    mems, loss, started = None, math.nan, time.perf_counter()
    model.train()
    for step in range(1, settings["steps"] + 1):
        inputs, targets, fresh = lanes.next()
        total, mems = summed_loss(model, inputs, targets, None if fresh else mems)
        mean = total / targets.numel()
        optimizer.zero_grad(set_to_none=True)
        mean.backward()
        if optim["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), optim["clip"])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        optimizer.step()
        loss = mean.item()
        if log_every and (step % log_every == 0 or step == settings["steps"]):
            speed = step * targets.numel() / (time.perf_counter() - started)
            print(f"step {step}/{settings['steps']} loss {loss:.4f} {speed:.0f} tokens/s", file=sys.stderr)
    return loss


# ---- evaluation ----------------------------------------------------------------------------------------------

def evaluate(model, config, tokens):
    """Mean negative log-likelihood over every token but the first, each once, memory carried along each lane."""
    settings = config["eval"]
    segment = settings["segment"] or config["train"]["segment"]
    transformer = model.transformer
    if settings["mem_len"] >= 0:
        model.reset_memory_length(settings["mem_len"])
    transformer.same_length = settings["same_length"]
    if settings["clamp_len"] != 0:
        transformer.clamp_len = settings["clamp_len"]
    total, targets = 0.0, len(tokens) - 1
    model.eval()
    with torch.no_grad():
        # A lane's piece ends with the target of its last position, which the next lane begins with.
        share, longer = divmod(targets, settings["lanes"])
        bounds = [lane * share + min(lane, longer) for lane in range(settings["lanes"] + 1)]
        together = min(end - start for start, end in zip(bounds, bounds[1:])) // segment * segment
        rows = torch.stack([tokens[start : start + together + 1] for start in bounds[:-1]])
        mems = None
        for at in range(0, together, segment):
            loss, mems = summed_loss(model, rows[:, at : at + segment], rows[:, at + 1 : at + segment + 1], mems)
            total += loss.item()
        # What is left of each lane, up to a segment and a bit, one lane at a time.
        for lane, (start, end) in enumerate(zip(bounds, bounds[1:])):
            own = None if mems is None else [layer[:, lane : lane + 1] for layer in mems]
            for at in range(start + together, end, segment):
                stop = min(at + segment, end)
                loss, own = summed_loss(model, tokens[None, at:stop], tokens[None, at + 1 : stop + 1], own)
                total += loss.item()
    return total / targets, targets


# ---- command -------------------------------------------------------------------------------------------------

def run(args, config, seed, vocab_size, training, valid):
    torch.manual_seed(seed)
    model = build_model(config["model"], vocab_size)
    started = time.perf_counter()
    loss = train(model, config, training, args.log_every)
    train_seconds = time.perf_counter() - started
    nll, targets = evaluate(model, config, valid)
    result = {
        "seed": seed,
        "steps": config["train"]["steps"],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "train_loss": round(loss, 5),
        "valid_nll": round(nll, 6),
        "valid_ppl": round(math.exp(nll), 4),
        "valid_targets": targets,
        "train_seconds": round(train_seconds, 1),
    }
    print(json.dumps(result), flush=True)
    if args.save:
        model.save_pretrained(f"{args.save}/seed-{seed}", safe_serialization=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="what `segue pretrain --print-config` prints")
    parser.add_argument("--corpus", required=True, help="folder that `segue data build` wrote")
    parser.add_argument("--seeds", default="1", help="comma-separated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--log-every", type=int, default=50, help="steps between lines on stderr; 0: none")
    parser.add_argument("--save", help="folder for the trained models")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    args = parser.parse_intermixed_args()

    torch.set_num_threads(args.threads)
    config = read_config(args.config, args.overrides)
    with open(f"{args.corpus}/corpus.json", encoding="utf-8") as file:
        info = json.load(file)
    vocab_size = config["model"]["vocab_size"] or info["vocab_size"]
    training, valid = (read_split(args.corpus, info, split) for split in ("train", "valid"))
    results = [run(args, config, int(seed), vocab_size, training, valid) for seed in args.seeds.split(",")]
    mean = statistics.fmean(result["valid_ppl"] for result in results)
    print(json.dumps({"seeds": len(results), "mean_valid_ppl": round(mean, 4)}))


main()
