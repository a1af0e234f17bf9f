#!/usr/bin/env python3
"""Tokenizers with tokens of their own beside a vocabulary, in the layouts that this transformers writes and reads, and the ids it gives.

    $(scripts/peers.sh python NAME) tests/peers/added_tokens.py FOLDER [SEED]

NAME is `transfoxl` or `base`. Makes a folder for each case under FOLDER, and prints a JSON list of them: `folder`, and `lines`, each with `text` and
`ids`. Tokens, their flags and the texts are random, the same for the same SEED.
"""

import json
import pathlib
import random
import shutil
import sys
import types
import warnings

import sentencepiece
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AddedToken, AutoTokenizer

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

# sacremoses wants it for its command line alone.
sys.modules.setdefault("joblib", types.SimpleNamespace(Parallel=None, delayed=None))

V5 = int(transformers.__version__.split(".")[0]) >= 5
CONTENTS = ["<cur>", "<unit>", "[x]", "€", "€ur", "pay", "now it", "Ab", "éé", "``", "<cur", "$$", "ﬁ"]
WORDS = ["pay", "now", "it", "the", "café", "ab", "Ab", "2,000", "x", "``q''", "\u00a0", "ﬁn", "z€", "\n", "\t"]
TEXT = "pay now it the cafe ab 2,000 then they pay the new price and nowhere was it paid, said the one who saw it there"
SPECIAL = ["<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>"]


def train_pieces(folder):
    text = folder / "text.txt"
    words = TEXT.replace(",", "").split()
    text.write_text("\n".join(" ".join(random.sample(words, 8)) + " 2,000 <" for _ in range(300)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "spiece"), vocab_size=80, model_type="unigram",
        control_symbols=SPECIAL[2:], user_defined_symbols=["<eop>"], unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
        hard_vocab_limit=False, minloglevel=2,
    )


def token(content, special=None):
    """A token with flags of its own, or of which nothing is said."""
    if not V5 or random.random() < 0.4:
        # Versions before 4.34 lose flags on the way through their files, and tokens that byte-pair encoding has of itself.
        return content
    flags = {name: random.random() < 0.3 for name in ("lstrip", "rstrip", "single_word")}
    return AddedToken(content, normalized=random.random() < 0.5, **flags)


def add(tokenizer, words=False):
    contents = [c for c in random.sample(CONTENTS, 4) if not (words and " " in c)]
    plain, special = contents[:2], contents[2:]
    make = str if words else token
    tokenizer.add_tokens([make(content) for content in plain])
    if random.random() < 0.7:
        tokenizer.add_special_tokens({"additional_special_tokens": [make(content) for content in special]})
    if random.random() < 0.3:
        tokenizer.add_special_tokens({"mask_token": make("[blank]")})


def texts(names, words):
    parts = words + names * 2
    for _ in range(12):
        chosen = random.choices(parts, k=random.randint(1, 9))
        yield "".join(part + random.choice(["", " ", " ", "  "]) for part in chosen)


def lines(folder, words=WORDS):
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    names = list(tokenizer.get_added_vocab()) + (SPECIAL if words is WORDS else ["<eos>"])
    for text in texts([name for name in names if name != "<unk>"], words):
        yield {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False)}


def case(place, name, save, **how):
    folder = place / name
    folder.mkdir()
    save(folder)
    return {"folder": str(folder), "lines": list(lines(folder, **how))}


def xlnet(place, number):
    from transformers import XLNetTokenizer

    start = place / f"start-{number}"
    start.mkdir()
    shutil.copy(place / "spiece.model", start)
    switches = {"do_lower_case": random.random() < 0.2, "keep_accents": random.random() < 0.2}
    made = {}

    def saved(make):
        def save(folder):
            tokenizer = make.from_pretrained(str(start), **switches)
            add(tokenizer)
            tokenizer.save_pretrained(str(folder))
        return save

    if V5:
        made["whole"] = saved(XLNetTokenizer)
    else:
        made["slow"] = saved(XLNetTokenizer)
        made["fast"] = saved(transformers.XLNetTokenizerFast)
    for kind, save in made.items():
        yield case(place, f"xlnet-{kind}-{number}", save)


def transfo_xl(place, number):
    def save(folder):
        (folder / "vocab.txt").write_text("\n".join(["<eos>", "<unk>", "pay", "now", "it", "the", "ab", "x"]) + "\n")
        tokenizer = transformers.TransfoXLTokenizer(vocab_file=str(folder / "vocab.txt"), lower_case=number % 2 == 1)
        (folder / "vocab.txt").unlink()
        add(tokenizer, words=True)
        tokenizer.save_pretrained(str(folder))

    words = ["pay", "now", "it", "the", "Ab", "x", "\n"]
    return case(place, f"transfo-xl-{number}", save, words=words)


def byte_pairs(place, number, apart):
    def save(folder):
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=300, special_tokens=["<s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator([TEXT], trainer)
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>")
        add(tokenizer)
        tokenizer.save_pretrained(str(folder))
        if apart:
            move_to_config(folder)

    return case(place, f"bytes-{apart}-{number}", save)


def move_to_config(folder):
    """Tokens that tokenizer.json does not know, with their flags in tokenizer_config.json, as slow tokenizers since 4.34 leave them."""
    file = folder / "tokenizer.json"
    backend = json.loads(file.read_text())
    size = len(backend["model"]["vocab"])
    moved = [t for t in backend["added_tokens"] if t["id"] >= size]
    backend["added_tokens"] = [t for t in backend["added_tokens"] if t["id"] < size]
    file.write_text(json.dumps(backend))
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text())
    config["added_tokens_decoder"] = {str(t.pop("id")): t for t in moved}
    file.write_text(json.dumps(config))


def main():
    place = pathlib.Path(sys.argv[1])
    random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    train_pieces(place)
    cases = []
    for number in range(8):
        cases += xlnet(place, number)
        if V5:
            cases += [byte_pairs(place, number, apart) for apart in (False, True)]
        else:
            cases.append(transfo_xl(place, number))
    print(json.dumps(cases))


main()
