"""Calls of the program: keywords in, the object of `--json` out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Exit codes: no program to start; a job that a signal has stopped, after a checkpoint.
UNAVAILABLE = 69
PREEMPTED = 75
# Commands whose ranks `segue launch` starts.
LAUNCHED = ("pretrain", "finetune")
# Lines of stderr that are kept to look for an error in, where a command has printed no object.
LINES_KEPT = 100


class SegueError(Exception):
    """A command that did not end with exit code 0, or a program that cannot be started.

    Attributes:
        message: What happened, one sentence.
        hint: What to do about it, or None.
        exit_code: Exit code of the program, such as 78 for a bad configuration; 128 + N where signal N ended it.
        result: The object that the command printed, such as the findings of `doctor`; None where it printed none.
    """

    def __init__(self, message: str, hint: str | None, exit_code: int, result: dict[str, Any] | None = None) -> None:
        super().__init__(message, hint, exit_code, result)
        self.message, self.hint, self.exit_code, self.result = message, hint, exit_code, result

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


def run(
    command: str,
    *args: str | os.PathLike[str],
    ranks: int | None = None,
    overrides: Mapping[str, object] | None = None,
    progress: bool = True,
    **options: object,
) -> dict[str, Any]:
    """Calls a command and returns its result, the object that it prints under `--json`.

    Args:
        command: The command as it is typed, such as `"pretrain"` or `"data build"`.
        args: What the command takes without an option.
        ranks: Number of ranks of `pretrain` and `finetune`, which `segue launch -n` starts, on this host where it is not inside
            a job of a batch system. With `dry_run`, and of other commands, their option `--ranks`.
        overrides: Configuration keys and their values: numbers, bools, text, paths, and lists of these. None leaves a key out.
        progress: Pass the lines of the command on to `sys.stderr` as they come.
        options: Options by name, with `_` for `-`, and one more at the end for words of Python (`from_`). True sets a flag,
            False and None leave an option out, a list repeats it.

    Returns:
        The keys that "Results as JSON" lists for the command; those of the training command where there are ranks.

    Raises:
        SegueError: The command ended with another exit code than 0: 75 where a signal has stopped it after a checkpoint.
        KeyboardInterrupt: Ctrl-C, or the interruption of a notebook's cell. Training has written a checkpoint by then, and the
            same call goes on from it; a second one does not wait for that.

    Example:
        >>> run("pretrain", config="tiny", overrides={"run.dir": "runs/a", "data.corpus": "corpora/mine"})["step"]
        50
        >>> run("generate", model="runs/a", prompt="The ", tokens=20)["text"]
        'river is …'
    """
    launched = ranks is not None and command in LAUNCHED and not options.get("dry_run")
    words = [*command.split(), *map(_text, args)]
    if launched:
        words = ["launch", "-n", str(ranks), *words]
    else:
        options = {**options, "ranks": ranks}
    words += _options(options)
    words += [f"{key}={_toml(value)}" for key, value in (overrides or {}).items() if value is not None]
    code, printed, said = _call([*_program(), "--json", *words], progress)
    if code != 0 or printed is None:
        raise _failure(f"segue {command}", code, printed, said)
    return printed["result"] if launched and printed.get("result") else printed


def _program() -> list[str]:
    """The words that start the program: that of the wheel, else of `SEGUE_BIN`, else on PATH."""
    if (HERE / "bin" / "segue").is_file():
        return [sys.executable, str(HERE / "__main__.py")]
    return [os.environ.get("SEGUE_BIN") or shutil.which("segue") or "segue"]


def _options(options: Mapping[str, object]) -> Iterable[str]:
    for name, value in options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                yield option
            elif one is not None and one is not False:
                # As one word: a value may begin with a dash.
                yield f"{option}={_text(one)}"


def _text(value: object) -> str:
    if not isinstance(value, (str, os.PathLike, Real)):
        raise TypeError(f"{value!r} is not text, a path or a number")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _toml(value: object, in_list: bool = False) -> str:
    """The value of a key. Text is in quotes inside a list, and stands as it is elsewhere."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(one, in_list=True) for one in value) + "]"
    text = _text(value)
    return json.dumps(text, ensure_ascii=False) if in_list and not isinstance(value, Real) else text


def _call(words: list[str], progress: bool) -> tuple[int, dict[str, Any] | None, list[str]]:
    """The exit code, the object on the last line of stdout where there is one, and the last lines of stderr."""
    said: deque[str] = deque(maxlen=LINES_KEPT)
    interrupted = False
    # stdout goes to a file: nobody would empty a pipe while stderr is read.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE)
        except OSError as error:
            hint = "name the program in SEGUE_BIN, or put its folder on PATH"
            raise SegueError(f"cannot start {words[0]}: {error.strerror}", hint, UNAVAILABLE) from error
        with process:
            assert process.stderr is not None
            while True:
                try:
                    for line in process.stderr:
                        text = line.decode(errors="replace")
                        said.append(text.strip())
                        if progress:
                            sys.stderr.write(text)
                            sys.stderr.flush()
                    code = process.wait()
                    break
                except KeyboardInterrupt:
                    # A terminal sends SIGINT to the program too, and a second one ends it without a checkpoint. Whoever
                    # interrupts again wants that.
                    process.send_signal(signal.SIGINT if interrupted else signal.SIGUSR1)
                    interrupted = True
                except BaseException:
                    process.terminate()
                    raise
        if interrupted:
            raise KeyboardInterrupt
        output.seek(0)
        last = output.read().splitlines()[-1:]
    try:
        found = json.loads(last[0]) if last else None
    except ValueError:
        found = None
    return (128 - code if code < 0 else code), found if isinstance(found, dict) else None, list(said)


def _failure(name: str, code: int, printed: dict[str, Any] | None, said: list[str]) -> SegueError:
    """What a command that failed says: in its object, in that of the ranks it has started, or on stderr."""
    printed = printed or {}
    if code == PREEMPTED:
        return SegueError(f"{name} was stopped, after a checkpoint", "run the same command again", code, printed)
    for told in (printed, printed.get("result")):
        if isinstance(told, dict) and "error" in told:
            return SegueError(told["error"], told.get("hint"), code, printed)
    first = printed.get("first_failure")
    lines = [first["what"]] if isinstance(first, dict) else said

    def after(*prefixes: str) -> str | None:
        return next((line[len(mark) :] for line in lines for mark in prefixes if line.startswith(mark)), None)

    message = after("segue: error: ", "error: ") or (lines[0] if first else f"{name} ended with exit code {code}")
    return SegueError(message, after("hint: ", "tip: "), code, printed or None)
