"""Becomes the program, with libtorch as the package torch holds it. torch itself is found, and never imported."""

import ctypes
import importlib.metadata
import importlib.util
import json
import os
import sys
from typing import NoReturn

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.path.join(HERE, "bin", "segue")
# Exit code of segue where something that it runs on is not there.
UNAVAILABLE = 69


def fail(message: str, hint: str) -> NoReturn:
    sys.stderr.write(f"segue: error: {message}\nhint: {hint}\n")
    sys.exit(UNAVAILABLE)


def libtorch(version: str) -> str:
    """The folder with libtorch of this version, of the package torch that this Python would import."""
    install = f"install it: python3 -m pip install torch=={version}"
    spec = importlib.util.find_spec("torch")
    if spec is None:
        fail("the Python package torch is not installed", install)
    try:
        found = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        found = "of an unknown version"
    if found.split("+")[0] != version:
        fail(f"the Python package torch is {found}, expected {version}", install)
    for folder in spec.submodule_search_locations or []:
        lib = os.path.join(folder, "lib")
        if os.path.isfile(os.path.join(lib, "libtorch_cpu.so")):
            return lib
    fail("the Python package torch has no lib/libtorch_cpu.so", install)


def check_mpi(library: str, made_by: str) -> None:
    """Ends with advice where the MPI library of the host cannot be loaded."""
    try:
        ctypes.CDLL(library)
    except OSError as error:
        fail(
            f"cannot load the MPI library: {error}",
            f"install Open MPI 4 or 5 (this build is of {made_by}): apt-get install openmpi-bin on Debian and Ubuntu, "
            "dnf install openmpi and module load mpi/openmpi-x86_64 on RHEL and Fedora",
        )


def main() -> None:
    with open(os.path.join(HERE, "BUILD.json"), encoding="utf-8") as file:
        build = json.load(file)
    lib = libtorch(build["libtorch"])
    check_mpi(build["mpi_library"], build["mpi"])
    # What was checked comes first: a module of the site may have put another libtorch on this path.
    before = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = f"{lib}:{before}" if before else lib
    try:
        os.execv(BINARY, ["segue", *sys.argv[1:]])
    except OSError as error:
        fail(f"cannot start {BINARY}: {error}", "install the package segue again")


if __name__ == "__main__":
    main()
