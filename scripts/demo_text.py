#!/usr/bin/env python3
"""Chooses the text that `make demo` trains on, and prints its folders, one a line.

    demo_text.py CARGO_REGISTRY_SRC CHECKOUT

Whole crates of the user's cargo registry are taken until CAP_BYTES of Rust and Markdown are reached. Their order
is that of a hash of their names, so that it is the same everywhere and favours no letter of the alphabet. Where the
registry holds less than ENOUGH_BYTES (vendored or not yet fetched crates), the checkout's own files serve.
"""

import hashlib
import os
import pathlib
import sys

EXTENSIONS = (".rs", ".md")
CAP_BYTES = 16_000_000
ENOUGH_BYTES = 1_000_000
# A crate with more than this is mostly generated bindings, which read alike.
LARGEST_CRATE_BYTES = 5_000_000
OWN_FOLDERS_SKIPPED = {"target", "runs", ".git", ".deps"}


def text_bytes(folder):
    """Bytes of Rust and Markdown under `folder`."""
    return sum(
        os.path.getsize(os.path.join(place, file))
        for place, _, files in os.walk(folder)
        for file in files
        if file.endswith(EXTENSIONS)
    )


def registry_crates(source):
    """Crates of the registry, in the order of their names' hashes, up to the cap."""
    crates = [crate for index in pathlib.Path(source).glob("*") for crate in index.glob("*") if crate.is_dir()]
    crates.sort(key=lambda crate: hashlib.sha256(crate.name.encode()).digest())
    chosen, total = [], 0
    for crate in crates:
        size = text_bytes(crate)
        if 0 < size <= LARGEST_CRATE_BYTES and total + size <= CAP_BYTES:
            chosen.append(crate)
            total += size
    return chosen, total


def main():
    source, checkout = sys.argv[1:]
    chosen, total = registry_crates(source)
    where = "your cargo registry"
    if total < ENOUGH_BYTES:
        chosen = [folder for folder in sorted(pathlib.Path(checkout).iterdir())
                  if folder.is_dir() and folder.name not in OWN_FOLDERS_SKIPPED and text_bytes(folder)]
        total = sum(map(text_bytes, chosen))
        where = "this checkout"
    print(f"segue: the text: {len(chosen)} folders of {where}, {total / 1e6:.1f} MB of Rust and Markdown", file=sys.stderr)
    print("\n".join(map(str, chosen)))


main()
