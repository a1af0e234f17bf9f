#!/usr/bin/env python3
"""Translation: Segue next to `generate` of Hugging Face's Transformers, or to CTranslate2 in float32, with the same weights.

    python3 tests/bench/translate_vs_peer.py --model RUN --input FILE [--peer ctranslate2] [--beams 5] [--rounds 5] [--output FILE]

RUN is a translator that Segue has trained: its folder opens in MarianMTModel. All translate the same token ids by the same beam search (length penalty 1 of
L^1, at most 50 tokens more than the source), 32 sentences at once, sorted by length, on two threads; the peer at the fastest of the settings in VARIANTS. Nobody
counts loading, and the peers get their ids ready-made. Tokens are those of each one's own translations. Memory is the largest of the process.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time

THREADS, TOGETHER, MORE = 2, 32, 50
# Settings of each peer: threads inside a batch, batches side by side, and environment.
VARIANTS = {
    "transformers": {"two threads": (2, 1), "two threads, kept": (2, 1), "two processes, kept": (1, 2)},
    "ctranslate2": {"two threads a batch": (2, 1), "two batches": (1, 2)},
}


def groups_of(sources):
    """Numbers of sentences, by length, so many together."""
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    return [order[first:first + TOGETHER] for first in range(0, len(order), TOGETHER)]


def transformers_tokens(folder, sources, groups, threads, beams):
    """Tokens that some groups are translated to, and the time."""
    import torch
    from transformers import MarianMTModel

    torch.set_num_threads(threads)
    model = MarianMTModel.from_pretrained(folder).eval()
    pad, end = model.config.pad_token_id, model.config.eos_token_id
    tokens, began = 0, time.perf_counter()
    with torch.inference_mode():
        for group in groups:
            longest = max(len(sources[number]) for number in group)
            ids = torch.tensor([sources[number] + [pad] * (longest - len(sources[number])) for number in group])
            out = model.generate(input_ids=ids, attention_mask=(ids != pad).long(), num_beams=beams, do_sample=False, length_penalty=1.0,
                                 early_stopping=False, max_new_tokens=longest + MORE, bad_words_ids=[[pad]])
            tokens += int(((out != pad) & (out != end)).sum())
    return tokens, time.perf_counter() - began


def by_transformers(folder, sources, threads, processes, beams):
    groups = groups_of(sources)
    if processes == 1:
        return transformers_tokens(folder, sources, groups, threads, beams)
    import multiprocessing

    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        parts = [(folder, sources, groups[first::processes], threads, beams) for first in range(processes)]
        found = pool.starmap(transformers_tokens, parts)
    return sum(tokens for tokens, _ in found), max(seconds for _, seconds in found)


def by_ctranslate2(folder, sources, threads, batches, beams):
    import ctranslate2

    with tempfile.TemporaryDirectory() as place:
        pieces = convert(folder, f"{place}/model")
        translator = ctranslate2.Translator(f"{place}/model", compute_type="float32", inter_threads=batches, intra_threads=threads)
        texts = [[pieces[token] for token in source] for source in sources]
        longest = max(map(len, texts))
        began = time.perf_counter()
        found = translator.translate_batch(texts, beam_size=beams, length_penalty=1.0, max_batch_size=TOGETHER, max_decoding_length=longest + MORE)
        seconds = time.perf_counter() - began
    return sum(len(one.hypotheses[0]) for one in found), seconds


def convert(folder, to):
    """Writes the folder as CTranslate2 reads it; returns the names of ids there."""
    import ctranslate2
    import torch
    from ctranslate2.converters.transformers import MarianMTLoader
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(folder)
    pieces = [f"piece{token}" for token in range(model.config.vocab_size)]
    pieces[model.config.eos_token_id], pieces[model.config.pad_token_id] = "</s>", "<pad>"

    class Loader(MarianMTLoader):
        def get_vocabulary(self, model, tokenizer):
            return list(pieces)

        def set_config(self, config, model, tokenizer):
            config.bos_token = config.eos_token = "</s>"
            config.unk_token, config.decoder_start_token = "<unk>", "<pad>"

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
                 "--length-form", "length", "--length-penalty", "1"]
    pieces = last_json([*ours_line, "--alignments"])["sentences"]
    vocabulary = json.load(open(f"{args.model}/tokenizer.json"))["model"]["vocab"]
    end = json.load(open(f"{args.model}/config.json"))["eos_token_id"]
    found = [sentence["translations"][0]["source_pieces"] for sentence in pieces if sentence["translations"]]
    # The end is a piece of the source as well.
    sources = [[vocabulary.get(piece, end) for piece in source] for source in found]
    print(f"# {len(sources)} sentences, {sum(map(len, sources))} source tokens, beam {args.beams}, {TOGETHER} together, {THREADS} threads")

    def ours():
        with tempfile.TemporaryDirectory() as place:
            return last_json([*ours_line, "--output", f"{place}/out"]) | {}

    def figure():
        found = ours()
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
    summary |= {"peer": args.peer, "peer_variant": best, "peer_memory_mib": theirs(best)["memory_mib"], "beams": args.beams}
    write(args.output, summary)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer-of"]:
        os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
        peer(json.load(open(sys.argv[2])))
    else:
        main()
