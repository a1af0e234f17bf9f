"""Where torch's libraries and the kit's own files lie, and the environment that a program of the kit is started in."""

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import subprocess

PATIENCE = 60  # seconds for the loader
NEWER_HOST = "run the kit on a host as new as Ubuntu 22.04 or Debian 12, or build one there: make gpu-kit"


@dataclasses.dataclass(frozen=True)
class Torch:
    """An installed package torch, found without importing it."""
    folder: pathlib.Path
    version: str | None
    commit: str | None
    cuda: str | None = None

    @property
    def libraries(self):
        return self.folder / "lib"

    @property
    def has_cuda(self):
        return (self.libraries / "libtorch_cuda.so").is_file()


def find_torch():
    """The package torch of the running interpreter; None where it has none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = pathlib.Path(spec.submodule_search_locations[0])
    try:
        text = (folder / "version.py").read_text()
    except OSError:
        text = ""
    version = re.search(r"__version__ = '(.+?)'", text)
    commit = re.search(r"git_version = '(\w+)'", text)
    cuda = re.search(r"^cuda\b.*= '(\d[\d.]*)'", text, re.MULTILINE)
    return Torch(folder, version.group(1) if version else installed_version(), commit.group(1) if commit else None,
                 cuda.group(1) if cuda else None)


def installed_version():
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def host_glibc():
    """The version of this host's C library, as `2.36`; None where it is no glibc."""
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (ValueError, OSError):
        return None
    return version if name == "glibc" else None


def numbers(version):
    return [int(part) for part in re.findall(r"\d+", version)]


class Kit:
    """The unpacked archive."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.build = json.loads((self.root / "BUILD.json").read_text())
        self.program = self.root / "libexec/segue"
        self.device_tests = self.root / "bin/device"
        self.recipes = self.root / "share/segue/recipes"
        self.corpus = self.root / "corpus"
        self.cases = self.root / "cases"
        self.peers = self.root / "peers"

    def identity(self):
        return {"commit": self.build["commit"], "version": self.build["version"], "torch": self.build["libtorch"]}

    def environment(self, torch):
        """Variables for the kit's binaries: torch's libraries in front, and the stand-in for MPI where the host has no MPI library."""
        folders = [str(torch.libraries), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
        variables = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, folders))}
        if self.what_is_missing(variables) is not None:
            folders.insert(1, str(self.root / "stub"))
            variables["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))
        return variables

    def what_is_missing(self, variables):
        """What the loader says of an MPI library that it cannot load for the binary; None where it finds one."""
        # With this variable the loader lists libraries and runs nothing.
        found = subprocess.run([self.program], env={**variables, "LD_TRACE_LOADED_OBJECTS": "1"},
                               capture_output=True, text=True, timeout=PATIENCE)
        for line in (found.stdout + found.stderr).splitlines():
            if "libmpi" in line and ("not found" in line or "error while loading" in line):
                return line.strip()
        return None

    def has_own_mpi(self, variables):
        """Whether the binary runs on the stand-in, that is with one rank."""
        return str(self.root / "stub") in variables["LD_LIBRARY_PATH"].split(":")

    def why_not_here(self):
        """Why no binary of the kit starts on this host, in one line; None where that is not known."""
        needed, found = self.build["kit"].get("glibc"), host_glibc()
        if needed and found and numbers(found) < numbers(needed):
            return f"this host has glibc {found}, and the kit was built for {needed} or newer"
        return None

    def doubts(self, torch):
        """Where this torch is not the one that the binary was built for: one line each."""
        wanted, kit = self.build["libtorch"], self.build["kit"]
        if (torch.version or "").split("+")[0] != wanted:
            yield f"torch is {torch.version}, expected {wanted}"
        if kit["torch_commit"] and torch.commit and torch.commit != kit["torch_commit"]:
            yield f"torch was built from commit {torch.commit}, expected {kit['torch_commit']}"
        library = torch.libraries / "libc10.so"
        if not library.is_file():
            yield f"{library} is not there"
        elif hashlib.sha256(library.read_bytes()).hexdigest() != kit["libc10_sha256"]:
            yield f"{library} is of another build than that which the kit was linked with"
