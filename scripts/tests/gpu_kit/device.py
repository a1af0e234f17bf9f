#!/usr/bin/env python3
"""Speaks as a Rust test binary does: a stand-in for tests of the kit's own programs."""

import os
import signal
import sys
import time

TESTS = ["adds", "crashes", "fails", "hangs", "is_left_out", "multiplies"]
FAILURE = """
failures:

---- fails stdout ----

thread 'fails' panicked at trainer/families/tests/device/main.rs:3:5:
assertion `left == right` failed: masks
  left: 1
 right: 2
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace


failures:
    fails

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""


def main():
    words = sys.argv[1:]
    if "--list" in words:
        print("\n".join(f"{name}: test" for name in TESTS))
        return 0
    chosen = [name for name in TESTS if name in words]
    print(f"\nrunning {len(chosen)} tests")
    for name in chosen:
        print(f"test {name} ... ", end="", flush=True)
        print(f"a library's warning in {name}", file=sys.stderr, flush=True)
        if name == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "hangs":
            time.sleep(600)
        print({"fails": "FAILED", "is_left_out": "ignored, needs two cards"}.get(name, "ok"), flush=True)
    if "fails" in chosen:
        print(FAILURE, flush=True)
    return 101 if "fails" in chosen else 0


sys.exit(main())
