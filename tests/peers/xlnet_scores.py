#!/usr/bin/env python3
"""Compares log-probabilities from left to right with those of Hugging Face's XLNetLMHeadModel.

    $(scripts/peers.sh python base) tests/peers/xlnet_scores.py MODEL SCORES.safetensors [--zeros] [--text TEXT --ids 17,11,..]

MODEL is a folder with config.json and model.safetensors, SCORES what `segue score` made of it: `input_ids`
[batch, time] and `log_probs` [batch, time, vocabulary]. The package is asked for every position at once, by perm_mask and
target_mapping, with one more token at the end whose place is predicted too. With --zeros it gets a memory of zeros, which a
model with memory_start "zeros" begins with here. With --text, AutoTokenizer also has to give
it --ids. Prints one JSON object. Exits 1 where the largest relative difference exceeds --limit, a weight is missing or left
over, or the ids are others; 2 where the packages are not installed.
"""

import argparse
import json
import sys

try:
    import torch
    import transformers
    from safetensors.torch import load_file
    from transformers import AutoTokenizer, XLNetLMHeadModel
except ImportError as error:
    print(f"{error}: run scripts/peers.sh, then this script with the interpreter it names", file=sys.stderr)
    sys.exit(2)

LIMIT = 1e-5


def log_probabilities(model, input_ids, zeros):
    """Of every token of the vocabulary after each position, [batch, time, vocabulary], without memory or with zeros in it."""
    batch, time = input_ids.shape
    longer = torch.cat([input_ids, torch.full((batch, 1), 3)], dim=1)
    # 1 where position i must not see position j; the package lets a content see itself all the same.
    perm_mask = torch.ones(time + 1, time + 1).triu().expand(batch, -1, -1)
    target_mapping = torch.eye(time + 1)[1:].expand(batch, -1, -1)
    config = model.config
    mems = [torch.zeros(config.mem_len, batch, config.d_model) for _ in range(config.n_layer)] if zeros else None
    with torch.no_grad():
        logits = model(input_ids=longer, mems=mems, perm_mask=perm_mask, target_mapping=target_mapping,
                       use_mems=False).logits
    return logits.log_softmax(-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder with config.json and model.safetensors")
    parser.add_argument("scores", help="safetensors file with input_ids and log_probs")
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--zeros", action="store_true", help='memory of zeros: the folder says memory_start "zeros"')
    parser.add_argument("--text")
    parser.add_argument("--ids")
    args = parser.parse_args()

    torch.set_num_threads(1)
    model, loading = XLNetLMHeadModel.from_pretrained(args.model, output_loading_info=True)
    model.eval()
    scores = load_file(args.scores)
    ours = scores["log_probs"]
    theirs = log_probabilities(model, scores["input_ids"].long(), args.zeros)
    if ours.shape != theirs.shape:
        sys.exit(f"log_probs is {list(ours.shape)} in {args.scores}, {list(theirs.shape)} by transformers")
    difference = (ours - theirs).abs()
    # Log-probabilities near 0 have no scale of their own: below 1 the difference counts as it is.
    relative = (difference / theirs.abs().clamp(min=1.0)).max().item()
    problems = {what: sorted(map(str, names)) for what, names in loading.items() if names}
    if args.text is not None:
        found = AutoTokenizer.from_pretrained(args.model)(args.text, add_special_tokens=False)["input_ids"]
        if found != [int(number) for number in args.ids.split(",")]:
            problems["ids"] = found
    print(json.dumps({
        "transformers": transformers.__version__,
        "positions": ours.shape[0] * ours.shape[1],
        "max_abs_difference": difference.max().item(),
        "max_rel_difference": relative,
        "problems": problems,
    }))
    # `not <=` rather than `>`: a NaN fails.
    if problems or not relative <= args.limit:
        sys.exit(1)


main()
