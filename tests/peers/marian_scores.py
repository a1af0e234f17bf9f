#!/usr/bin/env python3
"""Log-probabilities of translations by Hugging Face's MarianMTModel of a folder.

    $(scripts/peers.sh python base) tests/peers/marian_scores.py FOLDER PAIRS

PAIRS is a JSON list of `[source, target]`, token ids without their ends. Prints a JSON list of ln P of each target and its end.
"""

import json
import sys

import torch
from transformers import MarianMTModel

folder, pairs = sys.argv[1:]
model, report = MarianMTModel.from_pretrained(folder, output_loading_info=True)
model = model.eval()
end = model.config.eos_token_id
start = model.config.decoder_start_token_id
positions = {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"}
unknown = set(report["unexpected_keys"]) | set(report["missing_keys"]) - positions - {"final_logits_bias"}
assert not {key for key in unknown if "embed_tokens" not in key and "lm_head" not in key}, unknown
found = []
with torch.no_grad():
    for source, target in json.loads(pairs):
        labels = torch.tensor([target + [end]])
        inputs = torch.tensor([[start] + target])
        logits = model(input_ids=torch.tensor([source + [end]]), decoder_input_ids=inputs).logits
        chosen = torch.log_softmax(logits.double(), -1).gather(2, labels[..., None])
        found.append(float(chosen.sum()))
print(json.dumps(found))
