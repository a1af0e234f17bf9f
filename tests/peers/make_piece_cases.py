#!/usr/bin/env python3
"""Trains SentencePiece models of many options, and writes what the library makes of whole documents with them.

    $(scripts/peers.sh python base) tests/peers/make_piece_cases.py FOLDER [SEED]

Each folder in FOLDER has `spiece.model`, `text.jsonl` with documents full of line breaks and blanks, and `ids.json` with
their ids. Everything is drawn from SEED. Exits 2 where the package is not installed.
"""

import io
import itertools
import json
import pathlib
import random
import sys

try:
    import sentencepiece
except ImportError as error:
    print(f"{error}: run scripts/peers.sh, then this script with the interpreter it names", file=sys.stderr)
    sys.exit(2)

WORDS = "the old bridge of stone is long it was built in 1806, by (some) masons. caf\u00e9 fine road rose".split()
ODD = ["\n", "\n\n", "\r\n", "\t", " ", "  ", "\u3000", "\u00a0", "\u2581", ".", "<x>", "e\u0301", "\ufb01", "\u4e2d\u6587"]
ODD += ["\u200b", "\ufeff", "\u0085", "\u00bd", "\u00a8", "zzz", "ab", "A", "\u2028", "\u001c", "\U0001f980"]
RULES = ["identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf"]
SYMBOLS = [[], ["\n"], ["<x>", ".", "(", "ab"], ["\u2581" * 2, "\u2581" * 3, "\u2581" * 4]]


def trained(draw, rule, symbols, prefix, remove, suffix):
    lines = [" ".join(draw.choices(WORDS, k=8)) for _ in range(200)]
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=file,
        vocab_size=draw.choice([70, 110]) + 256 * (byte_fallback := draw.random() < 0.3),
        hard_vocab_limit=False,
        byte_fallback=byte_fallback,
        normalization_rule_name=rule,
        user_defined_symbols=symbols,
        add_dummy_prefix=prefix,
        remove_extra_whitespaces=remove,
        treat_whitespace_as_suffix=suffix,
        split_by_whitespace=draw.random() < 0.7,
        allow_whitespace_only_pieces=draw.random() < 0.5,
        num_threads=1,
        minloglevel=2,
    )
    model = file.getvalue()
    return model if draw.random() < 0.8 else unescaped(model)


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def length_of(size):
    return bytes([size & 127 | 128]) + length_of(size >> 7) if size > 127 else bytes([size])


def unescaped(model):
    """The model with `escape_whitespaces` off, which the trainer has no option for."""
    changed, at = b"", 0
    while at < len(model):
        key, at = varint(model, at)
        size, at = varint(model, at)
        content = model[at : at + size] + (b"\x28\x00" if key == 3 << 3 | 2 else b"")
        changed, at = changed + bytes([key]) + length_of(len(content)) + content, at + size
    return changed


def document(draw, length):
    return "".join(draw.choice(ODD) if draw.random() < 0.3 else draw.choice(WORDS + [" "] * 12) for _ in range(length))


def main(folder, seed=50):
    draw = random.Random(int(seed))
    combinations = list(itertools.product(RULES, SYMBOLS, [False, True], [False, True]))
    draw.shuffle(combinations)
    for number, (rule, symbols, prefix, remove) in enumerate(combinations[:24]):
        place = pathlib.Path(folder, str(number))
        place.mkdir()
        model = trained(draw, rule, symbols, prefix, remove, suffix=number % 5 == 0)
        pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
        documents = [document(draw, draw.randrange(1, 60)) for _ in range(60)]
        if number % 8 == 0:
            # Sums of scores round otherwise after so many pieces.
            documents.append(document(draw, 300_000))
        (place / "spiece.model").write_bytes(model)
        (place / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
        (place / "ids.json").write_text(json.dumps([pieces.encode(text) for text in documents]))


main(*sys.argv[1:])
