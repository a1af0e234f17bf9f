#!/usr/bin/env python3
"""Tokenising with a BPE vocabulary: `segue bench data` next to the tokenizers package's encode_batch.

    python3 tests/bench/tokenize_vs_peer.py [--tokenizer FOLDER] [--input FILE] [--rounds 5] [--output FILE]

The same tokenizer.json, the same text, two threads each, in turn. The peer's clock runs over encode_batch alone,
on lines already in memory. Without --input, WikiText-2's training text beside the checkout (../shared/data) serves;
without --tokenizer, one of 8000 entries is trained on the input.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import time

from alternate import ROOT, ROUNDS, in_turn, last_json, peer_python, segue_binary, skip, write

WORKERS = 2
# Lines of one encode_batch call: its results all live at once, so a whole corpus at a time would only swap.
BATCH_LINES = 4096
VOCABULARY = 8000


def measure_peer(tokenizer, text):
    """Runs in the peer's interpreter: one pass over `text`, a JSON line with the speed and the peak memory."""
    from tokenizers import Tokenizer, __version__

    tokenizer = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    data = pathlib.Path(text).read_text(encoding="utf-8", errors="replace")
    lines = data.splitlines(keepends=True)
    tokens, start = 0, time.perf_counter()
    for at in range(0, len(lines), BATCH_LINES):
        encoded = tokenizer.encode_batch(lines[at : at + BATCH_LINES], add_special_tokens=False)
        tokens += sum(len(encoding) for encoding in encoded)
    seconds = time.perf_counter() - start
    print(json.dumps({
        "mb_per_s": len(data.encode()) / 1e6 / seconds,
        "tokens": tokens,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "version": __version__,
    }))


def train_tokenizer(segue, text):
    folder = ROOT / "runs/bench/tokenizer"
    if not (folder / "tokenizer.json").is_file():
        subprocess.run([segue, "tokenizer", "train", "--kind", "bpe", "--vocab-size", str(VOCABULARY),
                        "--input", text, "--output", str(folder)], check=True, cwd=ROOT)
    return str(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", help="folder with tokenizer.json")
    parser.add_argument("--input", default=str(ROOT.parent / "shared/data/wikitext-2/wiki.train.tokens"))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--output", help="JSON file for every figure")
    parser.add_argument("--measure-peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure_peer:
        measure_peer(args.tokenizer, args.input)
        return
    print(f"# Tokenising, {WORKERS} threads: {pathlib.Path(args.input).name}")
    if not pathlib.Path(args.input).is_file():
        skip(f"there is no text at {args.input}; name one with --input")
    python = peer_python("base")
    segue = segue_binary()
    tokenizer = str(pathlib.Path(args.tokenizer).resolve()) if args.tokenizer else train_tokenizer(segue, args.input)
    common = ["--tokenizer", tokenizer, "--input", str(pathlib.Path(args.input).resolve())]
    ours = [segue, "bench", "data", *common, "--workers", str(WORKERS), "--json"]
    theirs = [python, __file__, "--measure-peer", *common]
    summary = in_turn(
        lambda: last_json(ours),
        lambda: last_json(theirs, RAYON_NUM_THREADS=str(WORKERS), TOKENIZERS_PARALLELISM="true"),
        "mb_per_s", "MB/s", args.rounds)
    for who in ("segue", "peer"):
        summary[f"{who}_peak_rss_mb"] = max(figures["peak_rss_mb"] for figures in summary[who])
    print(f"peak memory: Segue {summary['segue_peak_rss_mb']:.0f} MB, the peer {summary['peer_peak_rss_mb']:.0f} MB")
    write(args.output, summary)


if __name__ == "__main__":
    sys.exit(main())
