#!/usr/bin/env python3
"""Compares token ids with those of XLNet's reference: the SentencePiece library between the reference's own steps.

    $(scripts/peers.sh python base) tests/peers/xlnet_tokens.py CASES.json
    $(scripts/peers.sh python base) tests/peers/xlnet_tokens.py --golden spiece.model FIXTURE.json

CASES names a tokenizer folder (`folder`, with spiece.model), `lower_case`, and `lines`, each with `text` and the `ids` that
Segue gives. Every id has to be the same. Lines under `ordinary` (no special tokens in the text) are also given to
AutoTokenizer.from_pretrained(folder); there, too, ids have to be the same, but for numbers before a comma: their second
segmentation cannot be said in a tokenizer.json, and one line in 200 may differ by it. Prints one JSON object, with how
often transformers' own XLNetTokenizer differs. Exits 1 where an id differs, 2 where the packages are not installed.

With --golden it fills in the ids of FIXTURE, a list of objects with `text`, by the reference's steps: `cased`, `uncased`.
"""

import json
import pathlib
import re
import shutil
import sys
import tempfile
import unicodedata

try:
    import sentencepiece
    import transformers
    from transformers import AutoTokenizer
except ImportError as error:
    print(f"{error}: run scripts/peers.sh, then this script with the interpreter it names", file=sys.stderr)
    sys.exit(2)

EXCUSED_SHARE = 200


class Reference:
    """The steps that the reference takes around SentencePiece."""

    def __init__(self, model, lower_case):
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
        self.lower_case = lower_case

    def prepare(self, text):
        text = " ".join(text.split())
        for quotes in ("``", "''"):
            text = text.replace(quotes, '"')
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(c for c in decomposed if unicodedata.combining(c) == 0)
        return text.lower() if self.lower_case else text

    def cut(self, text):
        return self.pieces.encode(text, out_type=str)

    def cut_again(self, piece):
        """The pieces of one that ends in a digit and a comma."""
        inner = self.cut(piece[:-1].replace("▁", ""))
        if not piece.startswith("▁") and inner[0].startswith("▁"):
            inner[0] = inner[0][1:]
        return [p for p in inner if p] + [","]

    def ids(self, text):
        out = []
        for piece in self.cut(self.prepare(text)):
            is_number = len(piece) > 1 and piece.endswith(",") and piece[-2].isdigit()
            out += self.cut_again(piece) if is_number else [piece]
        return [self.pieces.piece_to_id(piece) for piece in out]


def write_golden(model, fixture):
    cased, uncased = Reference(model, False), Reference(model, True)
    cases = json.loads(pathlib.Path(fixture).read_text())
    lines = [{"text": c["text"], "cased": cased.ids(c["text"]), "uncased": uncased.ids(c["text"])} for c in cases]
    body = ",\n".join(json.dumps(line) for line in lines)
    pathlib.Path(fixture).write_text(f"[\n{body}\n]\n")


def plain_xlnet_tokenizer(folder, lower_case):
    """transformers' own class, made from nothing but spiece.model."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(pathlib.Path(folder) / "spiece.model", place)
        config = {"tokenizer_class": "XLNetTokenizer", "do_lower_case": lower_case}
        (pathlib.Path(place) / "tokenizer_config.json").write_text(json.dumps(config))
        return AutoTokenizer.from_pretrained(place)


def compare(path):
    cases = json.loads(pathlib.Path(path).read_text())
    reference = Reference(pathlib.Path(cases["folder"]) / "spiece.model", cases["lower_case"])
    auto = AutoTokenizer.from_pretrained(cases["folder"])
    plain = plain_xlnet_tokenizer(cases["folder"], cases["lower_case"])
    wrong, wrong_auto, plain_differs, ordinary = [], [], 0, 0
    for line in cases["lines"]:
        text, ours = line["text"], line["ids"]
        expected = reference.ids(text)
        if ours != expected:
            wrong.append({"text": text, "ours": ours, "reference": expected})
        if not line["ordinary"]:
            continue
        ordinary += 1
        found = auto.encode(text, add_special_tokens=False)
        if found != ours:
            wrong_auto.append({"text": text, "ours": ours, "auto": found})
        plain_differs += plain.encode(text, add_special_tokens=False) != ours
    pair = auto("a", "b")
    special = [auto.sep_token_id, auto.cls_token_id, auto.pad_token_id, auto.mask_token_id, auto.padding_side]
    excused = [line for line in wrong_auto if re.search(r"\d,", line["text"])]
    holds = not wrong and len(excused) == len(wrong_auto) and len(excused) <= ordinary // EXCUSED_SHARE
    print(json.dumps({
        "transformers": transformers.__version__, "sentencepiece": sentencepiece.__version__,
        "lines": len(cases["lines"]), "ordinary": ordinary,
        "wrong": len(wrong), "wrong_auto": len(wrong_auto), "plain_xlnet_tokenizer_differs": plain_differs,
        "pair_segments": pair["token_type_ids"], "special": special,
        "examples": wrong[:3] + wrong_auto[:3],
    }))
    sys.exit(0 if holds else 1)


if sys.argv[1:2] == ["--golden"] and len(sys.argv) == 4:
    write_golden(sys.argv[2], sys.argv[3])
elif len(sys.argv) == 2:
    compare(sys.argv[1])
else:
    sys.exit(__doc__)
