#!/usr/bin/env python3
"""Writes BUILD.json: what a release binary is made of and needs of its host, read from the binary itself.

    facts.py BINARY LIBTORCH_VERSION OUTPUT
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def said(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def newest(prefix, symbols):
    """The newest version among symbols such as GLIBC_2.35."""
    found = re.findall(rf"\b{prefix}_(\d+(?:\.\d+)+)\b", symbols)
    return max(found, key=lambda version: [int(part) for part in version.split(".")])


def version():
    """The workspace's version; that of a commit without a tag has the commit behind a +."""
    plain = re.search(r'(?m)^version = "(.+)"', (ROOT / "Cargo.toml").read_text()).group(1)
    commit = said("git", "rev-parse", "--short=10", "HEAD").strip()
    changed = bool(said("git", "status", "--porcelain", "--untracked-files=no").strip())
    tagged = f"v{plain}" in said("git", "tag", "--points-at", "HEAD").split()
    local = "" if tagged and not changed else f"+g{commit}" + (".changed" if changed else "")
    return plain + local, commit, changed


def facts(binary, libtorch):
    dynamic, symbols = said("readelf", "-d", binary), said("readelf", "-V", binary)
    needed = re.findall(r"NEEDED.*\[(.+)\]", dynamic)
    whole, commit, changed = version()
    mpi = said("mpirun", "--version").splitlines()[0]
    return {
        "name": "segue",
        "version": whole,
        "commit": commit,
        "changed": changed,
        "committed": int(said("git", "log", "-1", "--format=%ct")),
        "rustc": said("rustc", "--version").strip(),
        "libtorch": libtorch,
        "mpi": re.sub(r"[()]|mpirun ", "", mpi),
        "mpi_library": next(name for name in needed if name.startswith("libmpi.")),
        "glibc": newest("GLIBC", symbols),
        "libstdcxx": newest("GLIBCXX", symbols),
        "needed": needed,
        "runpath": re.findall(r"R(?:UN)?PATH.*\[(.+)\]", dynamic),
    }


def main():
    binary, libtorch, output = sys.argv[1:]
    found = facts(binary, libtorch)
    if any(not entry.startswith("$ORIGIN/") for path in found["runpath"] for entry in path.split(":")):
        sys.exit(f"segue: error: {binary} looks for libraries in {found['runpath']}: build it with SEGUE_RPATH")
    pathlib.Path(output).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
