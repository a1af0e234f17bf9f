#!/usr/bin/env python3
"""Labels that Hugging Face's pipeline gives to texts with a fine-tuned folder.

    $(scripts/peers.sh python base) tests/peers/pipeline_scores.py FOLDER TEXT..

Prints one JSON object: labels, scores, and the weights that the package misses or has left over.
"""

import json
import sys

from transformers import AutoModelForSequenceClassification, pipeline

folder, texts = sys.argv[1], sys.argv[2:]
_, info = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
found = pipeline("text-classification", model=folder, device="cpu")(texts)
print(json.dumps({"labels": [x["label"] for x in found], "scores": [x["score"] for x in found],
                  "missing": sorted(info["missing_keys"]), "unexpected": sorted(info["unexpected_keys"])}))
