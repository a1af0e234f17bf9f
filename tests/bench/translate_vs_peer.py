#!/usr/bin/env python3
"""Translation: Segue next to `generate` of Hugging Face's Transformers, or to CTranslate2 in float32, with the same weights.

    python3 tests/bench/translate_vs_peer.py --model RUN --input FILE [--peer ctranslate2] [--beams 5] [--rounds 5] [--output FILE]

RUN is a folder with a translator that Segue has trained: it opens in MarianMTModel. All translate the same token ids by beam search (length penalty L^1, at most 50
tokens more than the source), 32 sentences at once, sorted by length, on two threads; the peer at the fastest of the settings in VARIANTS. Against CTranslate2, which
ends a search as soon as there are as many translations as beams, ours ends so too. Nobody counts loading, and the peers get their ids ready-made and translate some
sentences before their time begins. Tokens are those of each one's own translations. Memory is the largest of a process, libraries included.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

THREADS, TOGETHER, MORE = 2, 32, 50
# Settings of each peer: threads inside a batch, batches side by side, and environment.
VARIANTS = {
    "transformers": {"two threads": (2, 1), "two threads, kept": (2, 1)},
    "ctranslate2": {"two threads a batch": (2, 1), "two batches": (1, 2)},
}


def groups_of(sources):
    """Numbers of sentences, by length, so many together."""
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    return [order[first:first + TOGETHER] for first in range(0, len(order), TOGETHER)]


def by_transformers(folder, sources, threads, _, beams):
    """Tokens of the translations, and the time."""
    import torch
    from transformers import MarianMTModel

    groups = groups_of(sources)
    torch.set_num_threads(threads)
    model = MarianMTModel.from_pretrained(folder).eval()
    pad, end = model.config.pad_token_id, model.config.eos_token_id
    # Padding is never written: cheaper than bad_words_ids.
    model.final_logits_bias[:, pad] = -torch.inf
    tokens, began = 0, 0.0
    with torch.inference_mode():
        for number, group in enumerate([groups[-1], *groups]):
            if number == 1:
                tokens, began = 0, time.perf_counter()
            longest = max(len(sources[number]) for number in group)
            ids = torch.tensor([sources[number] + [pad] * (longest - len(sources[number])) for number in group])
            out = model.generate(input_ids=ids, attention_mask=(ids != pad).long(), num_beams=beams, do_sample=False, length_penalty=1.0,
                                 early_stopping=False, max_new_tokens=longest + MORE)
            tokens += int(((out != pad) & (out != end)).sum())
    return tokens, time.perf_counter() - began


def by_ctranslate2(folder, sources, threads, batches, beams):
    import ctranslate2

    with tempfile.TemporaryDirectory() as place:
        # In a process of its own: what converting takes is not what translating takes.
        pieces = json.loads(subprocess.run([sys.executable, __file__, "--convert", folder, f"{place}/model"], check=True, capture_output=True,
                                           text=True).stdout.splitlines()[-1])
        translator = ctranslate2.Translator(f"{place}/model", compute_type="float32", inter_threads=batches, intra_threads=threads)
        texts = [[pieces[token] for token in source] for source in sources]
        longest = max(map(len, texts))
        translator.translate_batch(texts[:TOGETHER], beam_size=beams, max_batch_size=TOGETHER)
        began = time.perf_counter()
        found = translator.translate_batch(texts, beam_size=beams, length_penalty=1.0, max_batch_size=TOGETHER, max_decoding_length=longest + MORE)
        seconds = time.perf_counter() - began
    return sum(len(one.hypotheses[0]) for one in found), seconds


def convert(folder, to):
    """Writes the folder as CTranslate2 reads it; returns the names of ids."""
    import ctranslate2
    import torch
    from ctranslate2.converters.transformers import MarianMTLoader
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(folder)
    pieces = [f"piece{token}" for token in range(model.config.vocab_size)]
    pieces[model.config.eos_token_id], pieces[model.config.pad_token_id] = "</s>", "<pad>"

    class Loader(MarianMTLoader):
        def get_vocabulary(self, model, tokenizer):
            # It has no row for padding, and begins with zeros.
            return [piece for piece in pieces if piece != "<pad>"]

        def set_config(self, config, model, tokenizer):
            config.bos_token = config.eos_token = "</s>"
            config.unk_token, config.decoder_start_token = "<unk>", "</s>"

    class Converter(ctranslate2.converters.Converter):
        def _load(self):
            with torch.no_grad():
                return Loader()(model, None)

    pieces[next(token for token, piece in enumerate(pieces) if piece not in ("</s>", "<pad>"))] = "<unk>"
    Converter().convert(to, force=True)
    return pieces


def peer(asked):
    """Prints a JSON line."""
    by = {"transformers": by_transformers, "ctranslate2": by_ctranslate2}[asked["peer"]]
    tokens, seconds = by(asked["folder"], asked["sources"], *asked["setting"], asked["beams"])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"tokens_per_s": tokens / seconds, "tokens": tokens, "seconds": seconds, "memory_mib": memory}))


def measured(command):
    """Prints the JSON line of a command, with its memory."""
    line = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    print(json.dumps(line | {"memory_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024}))


def main():
    from alternate import KEEP_FREED_MEMORY, fastest, in_turn, last_json, peer_python, segue_binary, write

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="model folder, such as best/ of a run")
    parser.add_argument("--input", required=True, help="text to translate")
    parser.add_argument("--peer", choices=VARIANTS, default="transformers")
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", help="JSON file for every figure")
    args = parser.parse_args()
    python, binary = peer_python("base"), segue_binary()
    ours_line = [binary, "--json", "translate", "--model", args.model, "--input", args.input, "--beams", str(args.beams), "--threads", str(THREADS),
                 "--length-form", "length", "--length-penalty", "1", "--finish", "first" if args.peer == "ctranslate2" else "worst"]
    pieces = last_json([*ours_line, "--alignments"])["sentences"]
    vocabulary = json.load(open(f"{args.model}/tokenizer.json"))["model"]["vocab"]
    end = json.load(open(f"{args.model}/config.json"))["eos_token_id"]
    found = [sentence["translations"][0]["source_pieces"] for sentence in pieces if sentence["translations"]]
    # The end is the last piece of the source as well.
    sources = [[*(vocabulary[piece] for piece in source[:-1]), end] for source in found]
    print(f"# {len(sources)} sentences, {sum(map(len, sources))} source tokens, beam {args.beams}, {TOGETHER} together, {THREADS} threads")

    def figure():
        with tempfile.TemporaryDirectory() as place:
            found = last_json([python, __file__, "--measured", *ours_line, "--output", f"{place}/out"])
        return found | {"tokens_per_s": found["tokens"] / found["seconds"]}

    def theirs(variant):
        asked = {"peer": args.peer, "folder": args.model, "sources": sources, "setting": VARIANTS[args.peer][variant], "beams": args.beams}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(asked, file)
            file.flush()
            settings = KEEP_FREED_MEMORY if "kept" in variant else {}
            return last_json([python, __file__, "--peer-of", file.name], TRANSFORMERS_VERBOSITY="error", **settings)

    best = fastest(VARIANTS[args.peer], theirs, "tokens_per_s")
    summary = in_turn(figure, lambda: theirs(best), "tokens_per_s", "tokens/s", args.rounds)
    one, other = figure(), theirs(best)
    summary |= {"peer": args.peer, "peer_variant": best, "beams": args.beams, "tokens": one["tokens"], "peer_tokens": other["tokens"],
                "memory_mib": one["memory_mib"], "peer_memory_mib": other["memory_mib"]}
    # CTranslate2 begins a target with zeros, where the model was trained with a vector: its translations are other ones.
    assert args.peer == "ctranslate2" or abs(one["tokens"] / other["tokens"] - 1) < 0.02, "the translations differ in length"
    write(args.output, summary)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer-of"]:
        os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
        peer(json.load(open(sys.argv[2])))
    elif sys.argv[1:2] == ["--convert"]:
        print(json.dumps(convert(*sys.argv[2:4])))
    elif sys.argv[1:2] == ["--measured"]:
        measured(sys.argv[2:])
    else:
        main()
