#!/usr/bin/env python3
"""Completes the BUILD.json of a release binary with what the kit around it holds.

    facts.py STAGE LIBTORCH [TORCH_VERSION_PY]

STAGE is the folder that is packed, LIBTORCH the one that the binary was linked with. TORCH_VERSION_PY, the file `version.py` of the same
release of torch, tells the commit of torch where it is at hand.
"""

import hashlib
import json
import pathlib
import re
import subprocess
import sys


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def oldest_glibc(binary):
    """The oldest glibc, as `2.35`, that has all that a binary asks of it."""
    asked = subprocess.run(["readelf", "-W", "--version-info", binary], check=True, capture_output=True, text=True).stdout
    versions = [tuple(map(int, version.split("."))) for version in re.findall(r"\bGLIBC_([\d.]+)", asked)]
    return ".".join(map(str, max(versions)))


def commit_of_torch(version_py, release):
    """The commit that torch was built from; None where the file is missing or of another release."""
    if version_py is None or not version_py.is_file():
        return None
    text = version_py.read_text()
    if not re.search(rf"__version__ = '{re.escape(release)}[+']", text):
        return None
    return re.search(r"git_version = '(\w+)'", text).group(1)


def main():
    stage, libtorch, *rest = map(pathlib.Path, sys.argv[1:])
    place = stage / "BUILD.json"
    build = json.loads(place.read_text())
    build["kit"] = {
        # The library with the C++ interface that the binary calls: its hash says whether a torch is of the same build.
        "libc10_sha256": sha256(libtorch / "lib/libc10.so"),
        "glibc": oldest_glibc(stage / "libexec/segue"),
        "torch_commit": commit_of_torch(rest[0] if rest else None, build["libtorch"]),
        "files": {str(path.relative_to(stage)): sha256(path)
                  for path in sorted(stage.rglob("*")) if path.is_file() and path != place},
    }
    place.write_text(json.dumps(build, indent=1) + "\n")


if __name__ == "__main__":
    main()
