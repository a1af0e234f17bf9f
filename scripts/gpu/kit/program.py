"""Calls of `segue` and of torch's programs, and what came of them."""

import functools
import json
import re
import signal
import subprocess
import sys

PATIENCE = 300  # seconds for one program


class Skip(Exception):
    """A case cannot run here, for a reason that is no fault."""


class Failed(Exception):
    """A program, or a value that it gave, is not as promised."""


class Crashed(Exception):
    """A program was ended by a signal."""


def signal_name(code):
    """`SIGSEGV` of the return code -11."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def complaint(text):
    """The line of an error, where there is one, else the last line."""
    found = re.search(r"(?m)^.*segue: error: .*$", text)
    return found.group(0).strip() if found else last_line(text)


def last_object(text):
    """The JSON object on the last line that holds one; None where there is none."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return None


def call(words, env=None, codes=(0,), log=sys.stderr):
    """Runs a program to its end and returns its standard output. The log gets all that it says."""
    print("$", *words, file=log, flush=True)
    try:
        done = subprocess.run([str(word) for word in words], env=env, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Failed(f"{words[0]} was stopped after {PATIENCE} s") from None
    print(done.stdout + done.stderr, file=log, flush=True)
    if done.returncode < 0:
        raise Crashed(f"{signal_name(done.returncode)} in {words[0]}: {last_line(done.stderr)}")
    if done.returncode not in codes:
        raise Failed(f"exit code {done.returncode}: {complaint(done.stderr)}")
    return done.stdout


class Segue:
    """The kit's binary in the environment that it needs."""

    def __init__(self, kit, torch, log=sys.stderr):
        self.program, self.log = str(kit.program), log
        self.environment = kit.environment(torch)
        self.has_own_mpi = kit.has_own_mpi(self.environment)

    def run(self, *words, codes=(0,)):
        """Runs a command and returns its standard output."""
        return call([self.program, *words], self.environment, codes, self.log)

    def json(self, *words, codes=(0,)):
        """The object that a command ends with."""
        found = last_object(self.run(*words, "--json", codes=codes))
        if found is None:
            raise Failed(f"segue {words[0]} ends without a JSON object")
        return found

    def start(self, *words):
        """Starts a command and goes on."""
        print("$", self.program, *words, file=self.log, flush=True)
        return subprocess.Popen([self.program, *map(str, words)], env=self.environment, stdout=self.log)

    @functools.cache
    def help(self, command):
        return self.run(*command.split(), "--help")

    def offers(self, command, option):
        """Whether a command, such as `bench step`, has an option."""
        return re.search(rf"(?m)^ +(?:-\w, )?{option}\b", self.help(command)) is not None

    def config(self, *words):
        """The merged configuration: a dictionary of sections."""
        return parse_config(self.run("pretrain", *words, "--print-config"))

    @functools.cache
    def has_key(self, section, key):
        return key in self.config().get(section, {})


def parse_config(text):
    """`--print-config`: TOML of one value a line, each with its origin behind ` # `. Their values are JSON's too."""
    sections = {}
    for line in text.splitlines():
        if header := re.fullmatch(r"\[(.+)\]", line):
            section = sections.setdefault(header.group(1), {})
        elif setting := re.fullmatch(r"(\S+) = (.+)  # .*", line):
            section[setting.group(1)] = value(setting.group(2))
    return sections


def value(text):
    """A number, string, list or truth value of TOML; as text what JSON writes otherwise, such as `inf`."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
