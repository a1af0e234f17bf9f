#!/usr/bin/env python3
"""Tokenising with a BPE vocabulary: `segue bench data` next to the tokenizers package's fastest call.

    python3 tests/bench/tokenize_vs_peer.py [--tokenizer FOLDER] [--input FILE] [--rounds 8] [--output FILE]

The same tokenizer.json, the same text, two threads each, in turn, and the same ids, which are compared first. The peer's clock runs over its
calls of encode_batch_fast alone (encode_batch without offsets), on lines already in memory. Without --input, WikiText-2's training text beside the checkout (../shared/data) serves;
without --tokenizer, one of 8000 entries is trained on the input.
"""

import argparse
import array
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from alternate import ROOT, ROUNDS, in_turn, last_json, peer_python, segue_binary, skip, write

WORKERS = 2
# Lines of one encode_batch call: its results all live at once, so a whole corpus at a time would only swap.
BATCH_LINES = 4096
VOCABULARY = 8000


def measure_peer(tokenizer, text, ids=None):
    """Runs in the peer's interpreter: one pass over `text`, a JSON line with the speed and the peak memory; the ids into a file."""
    from tokenizers import Tokenizer, __version__

    tokenizer = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    # Lines end at a line feed and nowhere else.
    with open(text, encoding="utf-8", newline="\n") as file:
        lines = file.readlines()
    tokens, kept, seconds = 0, array.array("I"), 0.0
    for at in range(0, len(lines), BATCH_LINES):
        batch = lines[at : at + BATCH_LINES]
        start = time.perf_counter()
        encoded = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        seconds += time.perf_counter() - start
        tokens += sum(len(encoding) for encoding in encoded)
        if ids:
            for encoding in encoded:
                kept.extend(encoding.ids)
    if ids:
        pathlib.Path(ids).write_bytes(kept.tobytes())
    print(json.dumps({
        "mb_per_s": sum(len(line.encode()) for line in lines) / 1e6 / seconds,
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


def compare_ids(ours, theirs):
    """Ends the program where the two give other ids."""
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder, name) for name in ("segue", "peer")]
        for command, file in zip((ours, theirs), files):
            last_json([*command, "--ids", str(file)])
        mine, other = (file.read_bytes() for file in files)
    if mine != other:
        sys.exit(f"the ids differ: {len(mine) // 4} of Segue, {len(other) // 4} of the peer")
    print(f"the same {len(mine) // 4} ids")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", help="folder with tokenizer.json")
    parser.add_argument("--input", default=str(ROOT.parent / "shared/data/wikitext-2/wiki.train.tokens"))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--output", help="JSON file for every figure")
    parser.add_argument("--measure-peer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ids", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure_peer:
        measure_peer(args.tokenizer, args.input, args.ids)
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
    settings = dict(RAYON_NUM_THREADS=str(WORKERS), TOKENIZERS_PARALLELISM="true")
    compare_ids(ours, theirs)
    summary = in_turn(
        lambda: last_json(ours), lambda: last_json(theirs, **settings),
        "mb_per_s", "MB/s", args.rounds)
    for who in ("segue", "peer"):
        summary[f"{who}_peak_rss_mb"] = max(figures["peak_rss_mb"] for figures in summary[who])
    print(f"peak memory: Segue {summary['segue_peak_rss_mb']:.0f} MB, the peer {summary['peer_peak_rss_mb']:.0f} MB")
    write(args.output, summary)


if __name__ == "__main__":
    sys.exit(main())
