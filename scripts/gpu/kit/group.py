"""A program and everything that it starts, with a time limit for all of it."""

import contextlib
import os
import signal
import subprocess
import sys
import time


def stop_group(process):
    """Kills a program that was started with `start_new_session`, and what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(words, limit, log, env=None):
    """Runs a program, its output into the file `log`: its return code, None where it was stopped at `limit` seconds."""
    process = subprocess.Popen([str(word) for word in words], env=env, stdin=subprocess.DEVNULL, stdout=log,
                               stderr=subprocess.STDOUT, start_new_session=True)
    try:
        return process.wait(timeout=max(limit, 0))
    except subprocess.TimeoutExpired:
        return None
    finally:
        # What it has left behind goes too: nothing may disturb the next case.
        stop_group(process)


def end_on_signals():
    """Lets SIGTERM and SIGHUP end this program as Ctrl-C does: blocks of `finally` are run."""
    def leave(number, _):
        sys.exit(128 + number)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, leave)


class Clock:
    """Seconds since the start, and what is left of those that there are."""

    def __init__(self, seconds):
        self.seconds, self.began = seconds, time.monotonic()

    def spent(self):
        return time.monotonic() - self.began

    def left(self):
        return self.seconds - self.spent()
