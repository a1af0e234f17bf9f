#!/usr/bin/env python3
"""Folders of Marian models, and translations by Hugging Face's package.

    python=$(scripts/peers.sh python base)
    $python tests/peers/marian_folders.py pieces TEXT SIZE MODEL
    $python tests/peers/marian_folders.py make SOURCE TARGET FOLDER
    $python tests/peers/marian_folders.py old FOLDER OLD
    $python tests/peers/marian_folders.py translate FOLDER TEXT

`pieces` trains the SentencePiece model MODEL, `make` the two of a model on texts of both sides, with a vocabulary that lacks some of their pieces, and the model, from random
weights a few steps on these texts; `old` writes that as folders of 2020 had it: a pickle, with copies of the table and the vectors of positions, and settings of a search in config.json. `translate` prints the name of the
tokenizer's class and the best translation of each line by four beams: its text, its score, and whether it is as long as it may be.
"""

import json
import shutil
import sys
from pathlib import Path

import sentencepiece
import torch
from transformers import AutoTokenizer, MarianConfig, MarianMTModel, MarianTokenizer

# Tokens that a translation may have more than its source.
MORE = 50
# Steps of training, and pairs of each.
STEPS, BATCH = 300, 50
CODE = ">>de<<"


def pieces(text, size, model):
    sentencepiece.SentencePieceTrainer.train(
        input=text,
        model_writer=open(model, "wb"),
        vocab_size=int(size),
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )


def listed(model):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]


def make(source, target, folder):
    folder = Path(folder)
    folder.mkdir()
    for text, name in [(source, "source.spm"), (target, "target.spm")]:
        pieces(text, 90, folder / name)
    # Every tenth piece of the source is none of the vocabulary's.
    own = [piece for i, piece in enumerate(listed(folder / "source.spm")) if i % 10 != 7]
    tokens = list(dict.fromkeys(["</s>", "<unk>", *own, *listed(folder / "target.spm"), CODE, "<pad>"]))
    vocabulary = {token: i for i, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    size, pad = len(tokens), len(tokens) - 1
    torch.manual_seed(11)
    config = MarianConfig(
        vocab_size=size,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=2,
        encoder_ffn_dim=48,
        decoder_ffn_dim=40,
        activation_function="swish",
        max_position_embeddings=256,
        pad_token_id=pad,
        decoder_start_token_id=pad,
    )
    model = MarianMTModel(config)
    tokenizer = MarianTokenizer.from_pretrained(folder)
    with torch.no_grad():
        # Larger than at the start of training, so that scores lie apart.
        for name, weights in model.named_parameters():
            if "embed_positions" not in name and "norm" not in name:
                weights.normal_(std=0.2)
        model.final_logits_bias.normal_(std=0.5)
    learn_a_little(model, tokenizer, *[Path(text).read_text().splitlines() for text in (source, target)])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def learn_a_little(model, tokenizer, sources, targets):
    """Random weights write the same token without end; a few steps let sentences differ and end."""
    torch.set_num_threads(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(STEPS):
        rows = range(step * BATCH % len(sources), len(sources))[:BATCH]
        batch = tokenizer(
            [sources[row] for row in rows],
            text_target=[targets[row] for row in rows],
            padding=True,
            return_tensors="pt",
        )
        labels = batch.pop("labels")
        labels[labels == tokenizer.pad_token_id] = -100
        optimizer.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
    model.eval()


def old(folder, target):
    shutil.copytree(folder, target)
    weights = MarianMTModel.from_pretrained(folder).state_dict()
    assert {"lm_head.weight", "model.encoder.embed_positions.weight"} <= weights.keys()
    torch.save(weights, Path(target) / "pytorch_model.bin")
    (Path(target) / "model.safetensors").unlink()
    # Settings of a search were kept in config.json.
    (Path(target) / "generation_config.json").unlink(missing_ok=True)
    config = Path(target) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_beams": 6, "max_length": 77}))


def translate(folder, text):
    model, tokenizer = MarianMTModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    torch.set_num_threads(1)
    lines = Path(text).read_text().splitlines()
    # Sources of one length are translated side by side, without padding.
    by_length = {}
    for number, line in enumerate(lines):
        ids = tokenizer(line)["input_ids"]
        by_length.setdefault(len(ids), []).append((number, ids))
    found = [None] * len(lines)
    for length, sources in by_length.items():
        made = model.generate(
            input_ids=torch.tensor([ids for _, ids in sources]),
            num_beams=4,
            bad_words_ids=[[model.config.pad_token_id]],
            forced_eos_token_id=model.config.eos_token_id,
            early_stopping="never",
            length_penalty=1.0,
            max_length=None,
            max_new_tokens=length + MORE,
            output_scores=True,
            return_dict_in_generate=True,
        )
        texts = tokenizer.batch_decode(made.sequences, skip_special_tokens=True)
        written = (made.sequences != model.config.pad_token_id).sum(1)
        for (number, _), best, score, tokens in zip(sources, texts, made.sequences_scores, written):
            found[number] = [best, float(score), int(tokens) == length + MORE]
    print(json.dumps([type(tokenizer).__name__, found]))


{"pieces": pieces, "make": make, "old": old, "translate": translate}[sys.argv[1]](*sys.argv[2:])
