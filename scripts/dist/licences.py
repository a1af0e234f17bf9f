#!/usr/bin/env python3
"""Writes the licences of everything inside the release binary, from `cargo metadata` and the sources of the crates.

    licences.py FOLDER OUTPUT       FOLDER: licences of libtorch, whose headers are compiled into the binary
"""

import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLATFORM = "x86_64-unknown-linux-gnu"
NAMES = re.compile(r"^(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)
RULE = "=" * 100

INTRODUCTION = """Licences of what is inside the program segue
{rule}

Segue itself is licensed under MIT or Apache-2.0, at your choice. The program holds these crates, the standard library of
Rust (MIT or Apache-2.0) and code of libtorch's headers. Behind the list stand their licence texts, each once, with the names
of those that it came with. A crate that comes without a text is marked; its expression says which licence it has.

"""


def crates():
    """Packages of other people that are linked into the binary."""
    words = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", PLATFORM]
    said = json.loads(subprocess.run(words, check=True, capture_output=True, cwd=ROOT).stdout)
    packages = {package["id"]: package for package in said["packages"]}
    nodes = {node["id"]: node for node in said["resolve"]["nodes"]}
    members = set(said["workspace_members"])
    seen, open_ids = set(), [id for id in members if packages[id]["name"] == "segue"]
    while open_ids:
        id = open_ids.pop()
        if id in seen or is_macro(packages[id]):
            continue
        seen.add(id)
        for dep in nodes[id]["deps"]:
            # Of kind None is what is linked; "build" and "dev" are not.
            if any(kind["kind"] is None for kind in dep["dep_kinds"]):
                open_ids.append(dep["pkg"])
    foreign = [packages[id] for id in seen - members]
    return sorted(foreign, key=lambda package: (package["name"], package["version"]))


def is_macro(package):
    return any("proc-macro" in target["kind"] for target in package["targets"])


def texts(folder):
    """Licence files of a package, of the C libraries too that it carries in folders of their own."""
    found = []
    for pattern in ("*", "*/*"):
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and NAMES.match(path.name) and path.suffix not in (".rs", ".c", ".h"):
                found.append(path.read_text(errors="replace").strip())
    return found


def main():
    libtorch, output = map(pathlib.Path, sys.argv[1:])
    owners, lines = collections.OrderedDict(), []
    for package in crates():
        name = f"{package['name']} {package['version']}"
        found = texts(pathlib.Path(package["manifest_path"]).parent)
        expression = package["license"] or f"see {package['license_file']}"
        mark = "" if found else "   [comes without a text]"
        lines.append(f"  {name:36} {expression:44} {package['repository'] or ''}{mark}")
        for text in found:
            owners.setdefault(" ".join(text.split()), (text, []))[1].append(name)
    for path in sorted(libtorch.rglob("*")):
        if path.is_file() and "torch" in path.relative_to(libtorch).parts[0]:
            text = path.read_text(errors="replace").strip()
            owners.setdefault(" ".join(text.split()), (text, []))[1].append(f"libtorch ({path.name})")
    with open(output, "w", encoding="utf-8") as file:
        file.write(INTRODUCTION.format(rule=RULE) + "\n".join(lines) + "\n")
        for text, names in owners.values():
            file.write(f"\n{RULE}\n{', '.join(dict.fromkeys(names))}\n{RULE}\n\n{text}\n")
    print(f"licences of {len(lines)} crates, {len(owners)} texts", file=sys.stderr)


if __name__ == "__main__":
    main()
