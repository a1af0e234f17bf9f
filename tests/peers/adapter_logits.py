#!/usr/bin/env python3
"""A fine-tuned model, and its base with the adapter of `segue convert --adapter` on it, opened by Hugging Face's packages.

    $(scripts/peers.sh python base) tests/peers/adapter_logits.py BASE ADAPTER MERGED

Prints one JSON object: `difference`, the largest one of logits of random ids; `changed`, the largest one that the adapter makes on its base; `scale`, the
largest logit; `modules`, how many are adapted.
"""

import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForSequenceClassification

base, adapter, merged = sys.argv[1:]
whole = AutoModelForSequenceClassification.from_pretrained(merged).eval()
plain = AutoModelForSequenceClassification.from_pretrained(base, config=whole.config).eval()
torch.manual_seed(1)
ids = torch.randint(5, whole.config.vocab_size, (4, 12))
with torch.no_grad():
    before = plain(ids).logits
    adapted = PeftModel.from_pretrained(plain, adapter).eval()
    after, expected = adapted(ids).logits, whole(ids).logits
print(json.dumps({
    "difference": float((after - expected).abs().max()),
    "changed": float((after - before).abs().max()),
    "scale": float(expected.abs().max()),
    "modules": sum(name.endswith("lora_A.default") for name, _ in adapted.named_modules()),
}))
