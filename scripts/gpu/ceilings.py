#!/usr/bin/env python3
"""What a device can do at best, as torch measures it: products of large square matrices, and a copy within its memory.

    ceilings.py cpu|cuda [--products-only]

Prints one JSON object: `tflops` by precision, and `copy_gb_per_s`, bytes read and written.
"""

import argparse
import json
import statistics
import time

# Rows of the square matrices, gigabytes that a copy reads and writes together, and how often each is done.
SIZES = {"cuda": (8192, 8.0, 20), "cpu": (512, 0.064, 5)}
MOST = 0.5  # of a card's free memory, what a copy takes at most
WARMUP = 3
FLOAT_BYTES = 4


def seconds(torch, device, work, repeats):
    """Median seconds of one call of `work`."""
    def wait():
        if device == "cuda":
            torch.cuda.synchronize()
    for _ in range(WARMUP):
        work()
    times = []
    for _ in range(repeats):
        wait()
        began = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def product(torch, device, size, repeats, precision):
    """TFLOP/s of a product of two matrices."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    out = torch.empty_like(left)
    return 2 * size**3 / seconds(torch, device, lambda: torch.mm(left, right, out=out), repeats) / 1e12


def copy(torch, device, gigabytes, repeats):
    """GB/s read and written by a copy."""
    if device == "cuda":
        gigabytes = min(gigabytes, MOST * torch.cuda.mem_get_info()[0] / 1e9)
    source = torch.zeros(int(gigabytes / 2 * 1e9) // FLOAT_BYTES, device=device)
    target = torch.empty_like(source)
    return gigabytes / seconds(torch, device, lambda: target.copy_(source), repeats)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", choices=SIZES)
    parser.add_argument("--products-only", action="store_true")
    args = parser.parse_args()
    import torch

    size, gigabytes, repeats = SIZES[args.device]
    found = {"tflops": {precision: product(torch, args.device, size, repeats, precision) for precision in ("bf16", "tf32", "f32")}}
    if not args.products_only:
        found["copy_gb_per_s"] = copy(torch, args.device, gigabytes, repeats)
    print(json.dumps(found))


main()
