#!/usr/bin/env python3
"""Packs a Python wheel: the binary, the module that starts it, recipes, manual pages, completions, licences.

    wheel.py STAGE OUTPUT_FOLDER       STAGE: as scripts/dist.sh lays it out
"""

import base64
import hashlib
import json
import pathlib
import sys
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
# Oldest Python that torch 2.11 has wheels for.
PYTHON = ">=3.10"
# Newest libstdc++ symbols that manylinux allows beside a glibc: those of the GCC which distributions with it carry.
LIBSTDCXX = {"2.34": "3.4.29", "2.35": "3.4.30", "2.36": "3.4.30", "2.38": "3.4.32", "2.39": "3.4.33"}

METADATA = """Metadata-Version: 2.4
Name: segue
Version: {version}
Summary: Distributed data-parallel training of language models with segment memory
License-Expression: MIT OR Apache-2.0
{licences}Requires-Python: {python}
Requires-Dist: torch=={libtorch}
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Rust
Description-Content-Type: text/markdown

{readme}"""


def numbers(version):
    return [int(part) for part in version.split(".")]


def tag(build):
    """The platform of the wheel: by the newest symbols that the binary asks of glibc."""
    glibc = build["glibc"]
    known = [version for version in LIBSTDCXX if numbers(version) <= numbers(glibc)]
    allowed = LIBSTDCXX[max(known, key=numbers)] if known else "3.4.28"
    if numbers(build["libstdcxx"]) > numbers(allowed):
        sys.exit(f"segue: error: the binary needs GLIBCXX_{build['libstdcxx']}, glibc {glibc} comes with {allowed}")
    return f"py3-none-manylinux_{glibc.replace('.', '_')}_x86_64"


def members(stage, build):
    """Name in the wheel, bytes, and whether it is a program."""
    name = f"segue-{build['version']}"
    info, data = f"{name}.dist-info", f"{name}.data/data/share"
    for path in sorted([*(HERE / "segue").glob("*.py"), HERE / "segue/py.typed"]):
        yield f"segue/{path.name}", path.read_bytes(), False
    yield "segue/bin/segue", (stage / "libexec/segue").read_bytes(), True
    yield "segue/BUILD.json", (stage / "BUILD.json").read_bytes(), False
    for kind in ("recipes", "sweeps", "studies"):
        folder = stage / "share/segue" / kind
        for path in sorted([*folder.glob("*.toml"), *folder.glob("*.schema.json")]):
            yield f"segue/{kind}/{path.name}", path.read_bytes(), False
    for folder in ("man", "bash-completion", "zsh", "fish"):
        for path in sorted((stage / "share" / folder).rglob("*")):
            if path.is_file():
                yield f"{data}/{path.relative_to(stage / 'share')}", path.read_bytes(), False
    licences = ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY.txt"]
    for licence in licences:
        yield f"{info}/licenses/{licence}", (stage / licence).read_bytes(), False
    metadata = METADATA.format(
        version=build["version"], libtorch=build["libtorch"], python=PYTHON,
        licences="".join(f"License-File: {licence}\n" for licence in licences),
        readme=(HERE / "README.md").read_text(),
    )
    yield f"{info}/METADATA", metadata.encode(), False
    wheel = f"Wheel-Version: 1.0\nGenerator: segue\nRoot-Is-Purelib: false\nTag: {tag(build)}\n"
    yield f"{info}/WHEEL", wheel.encode(), False
    yield f"{info}/entry_points.txt", b"[console_scripts]\nsegue = segue.__main__:main\n", False


def write(archive, name, content, executable, when):
    """The same bytes whoever builds: the time is that of the commit."""
    entry = zipfile.ZipInfo(name, when)
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def main():
    stage, output = map(pathlib.Path, sys.argv[1:])
    build = json.loads((stage / "BUILD.json").read_text())
    when = time.gmtime(build["committed"])[:6]
    path = output / f"segue-{build['version']}-{tag(build)}.whl"
    record = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, content, executable in members(stage, build):
            write(archive, name, content, executable, when)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}\n")
        listed = f"segue-{build['version']}.dist-info/RECORD"
        write(archive, listed, "".join([*record, f"{listed},,\n"]), False, when)
    print(path)


if __name__ == "__main__":
    main()
