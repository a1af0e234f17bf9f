#!/usr/bin/env python3
"""Writes XLNet folders with Hugging Face's package, and opens folders with it.

    $(scripts/peers.sh python base) tests/peers/xlnet_folders.py write DIR
    $(scripts/peers.sh python base) tests/peers/xlnet_folders.py open DIR

`write` makes a random model with a head of each kind: DIR/CLASS/single (model.safetensors), DIR/CLASS/pieces (the same in
pieces), DIR/CLASS/pickle (pytorch_model.bin), DIR/CLASS/old (the same in torch.save's layout of 2019) and DIR/CLASS/pickles
(pieces with a list). `open` loads every DIR/CLASS/made* as CLASS, and compares hidden states and outputs with those of single.
Prints one JSON object a folder; exits 1 where weights are missing or left over or an output differs, 2 where the packages are not
installed.
"""

import json
import pathlib
import shutil
import sys

try:
    import torch
    import transformers
    from transformers import XLNetConfig
except ImportError as error:
    print(f"{error}: run scripts/peers.sh, then this script with the interpreter it names", file=sys.stderr)
    sys.exit(2)

CLASSES = [
    "AutoModelForCausalLM",
    "AutoModelForSequenceClassification",
    "AutoModelForMultipleChoice",
    "AutoModelForTokenClassification",
    "XLNetForQuestionAnsweringSimple",
    "XLNetForQuestionAnswering",
]
SIZES = {"vocab_size": 61, "d_model": 24, "n_layer": 3, "n_head": 3, "d_inner": 40, "ff_activation": "gelu_new"}


def make(name):
    # A start and an end are two labels of each token.
    labels = [f"L{i}" for i in range(2 if name == "XLNetForQuestionAnsweringSimple" else 3)]
    config = XLNetConfig(**SIZES, id2label=dict(enumerate(labels)), label2id={v: i for i, v in enumerate(labels)})
    torch.manual_seed(CLASSES.index(name))
    cls = getattr(transformers, name)
    model = cls.from_config(config) if name.startswith("Auto") else cls(config)
    # Fresh biases are zeros, which would hide that one was lost.
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.1)
    return model


def write_list(folder, stem, parts):
    names = [f"{stem}-{i + 1:05}-of-{len(parts):05}.bin" for i in range(len(parts))]
    for name, part in zip(names, parts):
        torch.save(part, folder / name)
    weight_map = {key: name for name, part in zip(names, parts) for key in part}
    text = json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map})
    (folder / f"{stem}.bin.index.json").write_text(text)


def write(root):
    for name in CLASSES:
        model = make(name)
        folders = {kind: root / name / kind for kind in ("single", "pieces", "pickle", "old", "pickles")}
        model.save_pretrained(folders["single"])
        model.save_pretrained(folders["pieces"], max_shard_size="12KB")
        assert (folders["pieces"] / "model.safetensors.index.json").exists()
        for kind in ("pickle", "old", "pickles"):
            folders[kind].mkdir()
            shutil.copy(folders["single"] / "config.json", folders[kind])
        state = {key: value.clone() for key, value in model.state_dict().items()}
        torch.save(state, folders["pickle"] / "pytorch_model.bin")
        torch.save(state, folders["old"] / "pytorch_model.bin", _use_new_zipfile_serialization=False)
        keys = sorted(state)
        parts = [{key: state[key] for key in keys[start::3]} for start in range(3)]
        write_list(folders["pickles"], "pytorch_model", parts)


def outputs(model, name):
    torch.manual_seed(1)
    ids = torch.randint(10, SIZES["vocab_size"], (2, 9))
    if name == "AutoModelForMultipleChoice":
        ids = ids.unsqueeze(0)
    with torch.no_grad():
        found = model.eval()(input_ids=ids, output_hidden_states=True)
    states = list(found.hidden_states)
    for key in ("logits", "start_logits", "end_logits", "start_top_log_probs", "end_top_log_probs", "cls_logits"):
        if found.get(key) is not None:
            states.append(found[key])
    return states


def load(name, folder):
    return getattr(transformers, name).from_pretrained(folder, output_loading_info=True)


def compare(name, folder):
    """True where the folder holds what `single` does."""
    model, loading = load(name, folder)
    ours, theirs = outputs(model, name), outputs(load(name, folder.parent / "single")[0], name)
    difference = max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))
    problems = {what: sorted(map(str, names)) for what, names in loading.items() if names}
    print(json.dumps({"class": name, "folder": folder.name, "problems": problems, "outputs": len(ours),
                      "max_difference": difference}))
    return not problems and difference == 0.0


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "open"):
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "write":
        return write(root)
    folders = [(name, folder) for name in CLASSES for folder in sorted((root / name).glob("made*"))]
    if not all([compare(name, folder) for name, folder in folders]):
        sys.exit(1)


main()
