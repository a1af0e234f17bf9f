#!/usr/bin/env python3
"""Writes the C source of a stand-in for the MPI library: enough to start a binary that runs one rank without `mpirun`.

    mpi_stub.py BINARY LIBRARY >stub.c

It defines what BINARY asks of LIBRARY, the MPI library that it was linked with: data as large as there, and functions that say
that they are not there and end the process. Read from the binary, it fits whatever the binary calls.
"""

import re
import subprocess
import sys

# A program asks these before it has anything to do with MPI: the answer is no.
QUESTIONS = ("MPI_Initialized", "MPI_Finalized")
# The exit code of `segue` for something that the host lacks (EX_UNAVAILABLE of sysexits.h).
UNAVAILABLE = 69
# The alignment of the largest object that any MPI library keeps on a cache line of its own.
ALIGNMENT = 64

HEAD = f"""#include <stdio.h>
#include <unistd.h>

static int refuse(const char *name) {{
    fprintf(stderr, "segue: error: %s: this stand-in for an MPI library runs one rank, without mpirun; "
                    "several need Open MPI 4\\n", name);
    _exit({UNAVAILABLE});
}}
"""


def symbols(path):
    """Name, kind, size and whether it is defined, of each dynamic symbol."""
    listed = subprocess.run(["readelf", "-W", "--dyn-syms", path], check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        found = re.match(r"\s*\d+: \w+\s+(\w+)\s+(\w+)\s+\w+\s+\w+\s+(\w+) ([^@\s]+)", line)
        if found:
            size, kind, section, name = found.groups()
            yield name, kind, int(size, 0), section != "UND"


def asked(binary, library):
    """What `binary` lacks and `library` has: name, kind and size."""
    lacking = {name for name, _, _, defined in symbols(binary) if not defined}
    return sorted((name, kind, size) for name, kind, size, defined in symbols(library) if defined and name in lacking)


def definition(name, kind, size):
    if kind == "OBJECT":
        return f"char {name}[{size}] __attribute__((aligned({ALIGNMENT})));"
    if name in QUESTIONS:
        return f"int {name}(int *flag) {{ *flag = 0; return 0; }}"
    return f'int {name}(void) {{ return refuse("{name}"); }}'


def main():
    found = asked(*sys.argv[1:])
    if not found:
        sys.exit(f"segue: error: {sys.argv[1]} asks nothing of {sys.argv[2]}")
    print(HEAD)
    print("\n".join(definition(*symbol) for symbol in found))


if __name__ == "__main__":
    main()
