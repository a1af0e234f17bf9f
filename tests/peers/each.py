#!/usr/bin/env python3
"""Runs a program of this folder once for each list of arguments, all in one process: importing the public packages takes seconds.

    $(scripts/peers.sh python base) tests/peers/each.py SCRIPT ARGUMENTS

ARGUMENTS is a JSON list of lists of texts. Prints a JSON list with an object for each of them: `code`, the exit code, and what
was said, `stdout` and `stderr`.
"""

import contextlib
import io
import json
import runpy
import sys
import traceback


def code_of(end):
    """The exit code of an interpreter that this exception ends; a text is said and counts as 1."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def run(script, arguments):
    # Said at once: should the interpreter itself end, this is where.
    print(f"{script} {arguments}", file=sys.stderr, flush=True)
    sys.argv = [script, *arguments]
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            runpy.run_path(script, run_name="__main__")
            code = 0
        except SystemExit as end:
            code = code_of(end)
        except Exception:
            traceback.print_exc()
            code = 1
    return {"code": code, "stdout": stdout.getvalue(), "stderr": stderr.getvalue()}


script, arguments = sys.argv[1:]
print(json.dumps([run(script, each) for each in json.loads(arguments)]))
