#!/usr/bin/env python3
"""Answers of Hugging Face's pipelines with a fine-tuned folder.

    $(scripts/peers.sh python base) tests/peers/pipeline_answers.py FOLDER PIPELINE TEXTS.json

TEXTS is a list of texts, or of pairs of them. Texts go through the pipeline in batches, so that shorter ones are filled up.
Prints one JSON object: `answers`, for each text the scores of all labels of `text-classification`, or the labels of the
first tokens of its words of `token-classification`; and the weights that the package misses or has left over.
"""

import json
import pathlib
import sys

from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, pipeline

BATCH = 8
CLASSES = {
    "text-classification": AutoModelForSequenceClassification,
    "token-classification": AutoModelForTokenClassification,
}


def of_texts(opened, texts):
    asked = [{"text": a, "text_pair": b} for a, b in texts] if isinstance(texts[0], list) else texts
    found = opened(asked, batch_size=BATCH, truncation=True, top_k=None)
    return [{answer["label"]: answer["score"] for answer in answers} for answers in found]


def of_words(opened, texts):
    answers = []
    for text, tokens in zip(texts, opened(texts, batch_size=BATCH, ignore_labels=[])):
        starts, at = [], 0
        for word in text.split(" "):
            starts.append(at)
            at += len(word) + 1
        # A token may begin with the space before its word.
        by_place = {}
        for token in tokens:
            begin = token["start"] + (text[token["start"]:token["start"] + 1] == " ")
            if token["end"] > begin:
                by_place.setdefault(begin, token["entity"])
        answers.append([by_place.get(start) for start in starts])
    return answers


folder, name, path = sys.argv[1:]
texts = json.loads(pathlib.Path(path).read_text())
_, info = CLASSES[name].from_pretrained(folder, output_loading_info=True)
opened = pipeline(name, model=folder, device="cpu")
answers = of_texts(opened, texts) if name == "text-classification" else of_words(opened, texts)
print(json.dumps({"answers": answers, "missing": sorted(info["missing_keys"]),
                  "unexpected": sorted(info["unexpected_keys"])}))
