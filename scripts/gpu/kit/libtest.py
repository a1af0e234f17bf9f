"""Runs the tests of a Rust test binary one after another, and goes on where one of them ends the process."""

import dataclasses
import os
import re
import select
import subprocess
import time

from kit.group import stop_group
from kit.program import signal_name

BLOCK = 1 << 16
PATIENCE = 60  # seconds for the list of tests
# With one thread libtest writes the name of a test as it begins, and its verdict behind it on the same line.
BEGUN = re.compile(r"test (\S+)(?: - should panic)? \.\.\. ")
VERDICT = re.compile(BEGUN.pattern + r"(ok|FAILED|ignored(?:, .*)?)$")
STATUS = {"ok": "pass", "FAILED": "fail"}
LOST = "its message was lost in a crash behind it"


@dataclasses.dataclass
class Verdict:
    """How a test ended: a status of the report, its seconds, and why."""
    name: str
    status: str
    seconds: float
    detail: str = ""


def names(program, env):
    """The tests of a binary."""
    listed = subprocess.run([program, "--list", "--format", "terse"], env=env, capture_output=True, text=True, check=True,
                            timeout=PATIENCE)
    return [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]


def reasons(said):
    """Why each failed test failed, by its name: libtest writes their output behind the last test."""
    found = re.findall(r"---- (\S+) stdout ----\n(.*?)(?=\n---- |\nfailures:|\Z)", said, re.DOTALL)
    return {name: panic_message(output) for name, output in found}


def panic_message(output):
    """The message of a panic on one line: what stands between its place and advice on stack traces."""
    message = output.partition(" panicked at ")[2].partition("\n")[2].partition("note: ")[0]
    return " ".join((message or output).split())


class Process:
    """One process of the test binary: the tests that it has ended, and the one that it was at."""

    def __init__(self, program, wanted, env, log, tell):
        self.tell, self.log = tell, log
        self.verdicts, self.running, self.said = [], None, ""
        self.began = time.monotonic()
        # Stack traces would stand between a panic and its message; errors of libraries between a test and its verdict.
        self.process = subprocess.Popen([program, "--exact", "--test-threads", "1", *wanted], stdin=subprocess.DEVNULL,
                                        env={**env, "RUST_BACKTRACE": "0"}, stdout=subprocess.PIPE, stderr=log,
                                        start_new_session=True)

    def follow(self, end):
        """Reads until the process or the time is over."""
        try:
            for piece in pieces(self.process.stdout.fileno(), end):
                self.log.write(piece)
                self.log.flush()
                self.read(piece.decode(errors="replace"))
            timed_out = time.monotonic() >= end
        finally:
            stop_group(self.process)
            self.process.stdout.close()
        for verdict in self.verdicts:
            if verdict.status == "fail":
                verdict.detail = reasons(self.said).get(verdict.name, LOST)
        if self.running is not None:
            code = self.process.returncode
            ended = f"the process ended with {signal_name(code) if code < 0 else f'exit code {code}'}"
            self.over(self.running, *("timeout", "stopped at the time limit") if timed_out else ("crash", ended))

    def read(self, piece):
        lines = (self.said.rpartition("\n")[2] + piece).split("\n")
        self.said += piece
        for line in lines[:-1]:
            if found := VERDICT.match(line):
                name, word = found.groups()
                self.over(name, STATUS.get(word, "skip"), "" if word in STATUS else word)
        begun = BEGUN.match(lines[-1])
        self.running = begun.group(1) if begun else None

    def over(self, name, status, detail):
        now = time.monotonic()
        self.verdicts.append(Verdict(name, status, now - self.began, detail))
        self.began = now
        self.tell(self.verdicts[-1])


def pieces(file, end):
    """What a program writes, as it comes, up to its end or the moment `end`."""
    while (left := end - time.monotonic()) > 0:
        if select.select([file], [], [], left)[0]:
            piece = os.read(file, BLOCK)
            if not piece:
                return
            yield piece


def run(program, wanted, limit, env, log, tell):
    """Runs the tests `wanted`, in new processes as long as they crash, and returns a verdict for each.

    `tell` gets each verdict as it falls, without the reason of a test that fails: that comes behind the last test.
    """
    end, left, verdicts = time.monotonic() + limit, list(wanted), []

    def give_up(name, status, detail):
        verdicts.append(Verdict(name, status, 0.0, detail))
        tell(verdicts[-1])

    while left and time.monotonic() < end:
        process = Process(program, left, env, log, tell)
        process.follow(end)
        verdicts += process.verdicts
        done = {verdict.name for verdict in process.verdicts}
        if not done:
            give_up(left.pop(0), "crash", "the process ended before a test began")
        left = [name for name in left if name not in done]
    for name in left:
        give_up(name, "timeout", f"not begun: the {limit:.0f} s for these tests are spent")
    return verdicts
