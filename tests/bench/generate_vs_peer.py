#!/usr/bin/env python3
"""Text written token by token: Segue next to Hugging Face's Transformer-XL, both with memory.

    python3 tests/bench/generate_vs_peer.py [--rounds 7] [--lanes 1] [--output FILE]

One process of one thread each, in turn: 4 layers, width 256, memory 512, 512 tokens of each of --lanes texts, drawn from the 40 most probable.
The peer runs in this file: one call of the model a token, which reads the memory it gave before, without gradients, at the fastest of the settings in
VARIANTS. Neither counts loading.
"""

import argparse
import json
import os
import sys
import time

VARIANTS = ("as it comes", "kept")
SIZES = dict(layers=4, d_model=256, heads=4, d_inner=1024, vocab=8000, mem=512, tokens=512, top_k=40)


def peer(lanes):
    """Prints a JSON line."""
    import torch
    from transformers import TransfoXLConfig, TransfoXLLMHeadModel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = TransfoXLConfig(vocab_size=SIZES["vocab"], cutoffs=[], d_model=SIZES["d_model"], d_embed=SIZES["d_model"], n_head=SIZES["heads"],
                             d_head=SIZES["d_model"] // SIZES["heads"], d_inner=SIZES["d_inner"], n_layer=SIZES["layers"], mem_len=SIZES["mem"],
                             clamp_len=-1, same_length=False, div_val=1)
    model = TransfoXLLMHeadModel(config).eval()
    last, mems = torch.zeros(lanes, 1, dtype=torch.long), None
    began = time.perf_counter()
    with torch.inference_mode():
        for _ in range(SIZES["tokens"]):
            out = model(input_ids=last, mems=mems)
            scores, mems = out.prediction_scores[:, -1], out.mems
            top, words = scores.topk(SIZES["top_k"])
            last = words.gather(1, torch.multinomial(top.softmax(-1), 1))
    seconds = time.perf_counter() - began
    print(json.dumps({"tokens_per_s": lanes * SIZES["tokens"] / seconds, "seconds": seconds,
                      "params": sum(p.numel() for p in model.parameters())}))


def main():
    from alternate import KEEP_FREED_MEMORY, fastest, in_turn, last_json, peer_python, segue_binary, write

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--lanes", type=int, default=1, help="texts written at once")
    parser.add_argument("--output", help="JSON file for every figure")
    args = parser.parse_args()
    print(f"# Transformer-XL writes, {args.lanes} at once, 1 thread: " + " ".join(f"{k} {v}" for k, v in SIZES.items()))
    python, binary = peer_python("transfoxl"), segue_binary()
    options = [word for name, value in SIZES.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

    def ours():
        return last_json([binary, "--json", "bench", "generate", "--lanes", str(args.lanes), *options], **environment)

    def theirs(variant):
        settings = {**environment, **(KEEP_FREED_MEMORY if "kept" in variant else {})}
        return last_json([python, __file__, "--peer", str(args.lanes)], **settings)

    best = fastest(VARIANTS, theirs, "tokens_per_s")
    summary = in_turn(ours, lambda: theirs(best), "tokens_per_s", "tokens/s", args.rounds)
    summary["lanes"], summary["peer_variant"], summary["sizes"] = args.lanes, best, SIZES
    write(args.output, summary)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        peer(int(sys.argv[2]))
    else:
        main()
