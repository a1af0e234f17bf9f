#!/usr/bin/env python3
"""Opens a Segue checkpoint with Hugging Face's TransfoXLLMHeadModel.from_pretrained and compares log-probabilities.

    $(scripts/peers.sh python transfoxl) tests/peers/from_pretrained.py CHECKPOINT SCORES.safetensors

SCORES holds what Segue computed from the same checkpoint, memory starting as zeros: `input_ids` [batch, time] and
`log_probs` [batch, time, vocabulary]. Prints one JSON object. Exits 1 where a weight is missing, left over or of
another shape, or where the largest relative difference exceeds --limit; 2 where the packages are not installed.
"""

import argparse
import json
import sys
import warnings

warnings.filterwarnings("ignore", category=FutureWarning)
try:
    import torch
    import transformers
    from safetensors.torch import load_file
    from transformers import TransfoXLLMHeadModel
except ImportError as error:
    print(f"{error}: run scripts/peers.sh, then this script with the interpreter it names", file=sys.stderr)
    sys.exit(2)

LIMIT = 1e-4


def log_probabilities(model, input_ids):
    """Of every token of the vocabulary after each position, [batch, time, vocabulary], in one pass from zero memory."""
    with torch.no_grad():
        return model(input_ids=input_ids.long()).prediction_scores


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="folder with config.json and model.safetensors")
    parser.add_argument("scores", help="safetensors file with input_ids and log_probs")
    parser.add_argument("--prefix", default="", help="of the two names in SCORES, such as 'segment0.'")
    parser.add_argument("--limit", type=float, default=LIMIT)
    args = parser.parse_args()

    model, loading = TransfoXLLMHeadModel.from_pretrained(args.checkpoint, output_loading_info=True)
    model.eval()
    scores = load_file(args.scores)
    ours = scores[args.prefix + "log_probs"].float()
    theirs = log_probabilities(model, scores[args.prefix + "input_ids"])
    if ours.shape != theirs.shape:
        sys.exit(f"log_probs is {list(ours.shape)} in {args.scores}, {list(theirs.shape)} by transformers")
    difference = (ours - theirs).abs()
    # Log-probabilities near 0 have no scale of their own: below 1 the difference counts as it is.
    relative = (difference / theirs.abs().clamp(min=1.0)).max().item()
    problems = {what: sorted(map(str, names)) for what, names in loading.items() if names}
    print(json.dumps({
        "transformers": transformers.__version__,
        "positions": ours.shape[0] * ours.shape[1],
        "max_abs_difference": difference.max().item(),
        "max_rel_difference": relative,
        "loading_problems": problems,
    }))
    # `not <=` rather than `>`: a NaN fails.
    if problems or not relative <= args.limit:
        sys.exit(1)


main()
