#!/usr/bin/env python3
"""Trains Hugging Face's XLNetLMHeadModel on the batches of a Segue run and compares the losses step by step.

    python=$(scripts/peers.sh python base)
    $python tests/peers/train_xlnet.py init FOLDER '{"vocab_size": 400, ...}'        random weights to begin with
    segue inspect batches --config R --steps 50 --output batches.safetensors [key=value ...]
    segue pretrain --config R train.init_from=FOLDER train.steps=50 log.every=1 model.dropout=0 model.dropatt=0 ...
    $python tests/peers/train_xlnet.py train FOLDER RUN batches.safetensors [--limit 1e-4] [--output losses.json]

The same weights, batches, memory, clipping and update, dropout off. RUN must have logged every step. The learning rate
of each step is the logged one; betas, ε, clip and weight decay (which must be 0) are those of RUN/config.json. Prints one
JSON object; exits 1 where the losses of a step differ by more than --limit, 2 where the packages are not installed.
"""

import argparse
import json
import pathlib
import sys

try:
    import torch
    from safetensors.torch import load_file
    from transformers import XLNetConfig, XLNetLMHeadModel
except ImportError as error:
    print(f"{error}: run scripts/peers.sh, then this script with the interpreter it names", file=sys.stderr)
    sys.exit(2)


def init(args):
    """Writes a freshly initialised model of the given sizes."""
    torch.manual_seed(1)
    XLNetLMHeadModel(XLNetConfig(**json.loads(args.config))).save_pretrained(args.model)


def sequences(batch):
    """What the package wants of one micro-batch: `perm_mask` [lanes, segment, segment], one-hot `target_mapping`."""
    ranks, positions = batch["ranks"], batch["positions"]
    later = ranks[:, None, :] > ranks[:, :, None]
    # A target is not seen by its own prediction; its content sees it all the same.
    chosen = torch.zeros_like(ranks, dtype=torch.bool)
    chosen.scatter_(1, positions, batch["weights"] > 0)
    hidden = later | torch.diag_embed(chosen)
    mapping = torch.nn.functional.one_hot(positions, ranks.shape[1]).float()
    return dict(input_ids=batch["input_ids"], token_type_ids=batch["segments"], perm_mask=hidden.float(),
                target_mapping=mapping)


def loss_of(model, batch, mems):
    """Summed loss of one micro-batch's targets, their number, and the memory after it."""
    out = model.transformer(**sequences(batch), mems=mems, use_mems=True)
    logits = model.lm_loss(out.last_hidden_state)
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch["targets"], reduction="none")
    return (losses * batch["weights"]).sum(), batch["weights"].sum(), [m.detach() for m in out.mems]


def train(args):
    config = json.loads(pathlib.Path(args.run, "config.json").read_text())
    rows = [json.loads(line) for line in pathlib.Path(args.run, "metrics.jsonl").read_text().splitlines()]
    ours = {row["step"]: row for row in rows if row["kind"] == "train"}
    optim, settings = config["optim"], config["model"]
    assert optim["weight_decay"] == 0 and settings["dropout"] == 0 and settings["dropatt"] == 0
    model = XLNetLMHeadModel.from_pretrained(args.model)
    model.transformer.mem_len, model.transformer.reuse_len = settings["mem_len"], settings["reuse_len"]
    model.eval()  # dropout off; gradients flow all the same
    adam = torch.optim.Adam(model.parameters(), betas=(optim["beta1"], optim["beta2"]), eps=optim["eps"])
    batches = load_file(args.batches)
    mems, losses = {}, []
    step = 1
    while f"step{step:05}.micro00000.input_ids" in batches:
        total = count = 0.0
        micro = 0
        adam.zero_grad()
        while f"step{step:05}.micro{micro:05}.input_ids" in batches:
            prefix = f"step{step:05}.micro{micro:05}."
            batch = {key[len(prefix):]: value for key, value in batches.items() if key.startswith(prefix)}
            lanes = batch["input_ids"].shape[0]
            reversed_lanes = int(batch["reversed"])
            assert reversed_lanes in (0, lanes // 2), "the package reads half of a batch backwards, or none"
            model.transformer.bi_data = reversed_lanes > 0
            if micro not in mems:  # zeros that are attended to
                mems[micro] = [torch.zeros(settings["mem_len"], lanes, settings["d_model"])
                               for _ in range(settings["n_layer"])]
            loss, weight, mems[micro] = loss_of(model, batch, mems[micro])
            loss.backward()
            total, count = total + loss.item(), count + weight.item()
            micro += 1
        for parameter in model.parameters():
            parameter.grad /= count
        if optim["clip"] > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), optim["clip"])
        for group in adam.param_groups:
            group["lr"] = ours[step]["lr"]
        adam.step()
        losses.append((step, ours[step]["loss"], total / count))
        step += 1
    worst = max(abs(a - b) for _, a, b in losses)
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps([dict(step=s, segue=a, peer=b) for s, a, b in losses]))
    print(json.dumps(dict(steps=len(losses), first=losses[0][1:], last=losses[-1][1:], max_difference=worst)))
    # `not <=` rather than `>`: a NaN fails.
    sys.exit(0 if losses and worst <= args.limit else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("init")
    first.add_argument("model")
    first.add_argument("config")
    second = commands.add_parser("train")
    second.add_argument("model")
    second.add_argument("run")
    second.add_argument("batches")
    second.add_argument("--limit", type=float, default=1e-4)
    second.add_argument("--output")
    args = parser.parse_args()
    init(args) if args.command == "init" else train(args)


main()
