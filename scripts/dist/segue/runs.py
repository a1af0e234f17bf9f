"""Runs as they lie on the disk: configuration, state, checkpoints and numbers."""

from __future__ import annotations

import fcntl
import html
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .program import SegueError

# Exit codes of the program.
BAD_DATA = 65
MISSING_INPUT = 66
# Numbers by name, a list for each; the lists are of one length.
Columns = dict[str, list["float | None"]]


class RunError(SegueError):
    """A folder that is not a run (exit code 66), or a damaged file of one (65): its `path`, and its `line` from 1 on, or None."""

    def __init__(self, path: Path, why: str, line: int | None = None, hint: str | None = None) -> None:
        place = f"{path}:{line}" if line else f"{path}"
        super().__init__(f"{place}: {why}", hint, BAD_DATA if path.is_file() else MISSING_INPUT)
        self.path, self.line = path, line
        # What a copy is made of, where one is passed on to another process.
        self.args = (path, why, line, hint)


class Checkpoint(NamedTuple):
    """A whole checkpoint of a run."""

    step: int
    path: Path


class Run:
    """A run, read once: another `Run` of the folder reads what has come since. Nothing in the folder is changed.

    Attributes:
        path: The run folder.
        config: The configuration of the last start, section by section; empty where it was not written yet.
        state: `"training"` while a job holds the run's lock, `"done"` after its end, else `"stopped"`.
        checkpoints: The whole checkpoints, by rising step.
        rows: The rows of `metrics.jsonl` as they are. Those of steps that a later attempt made again are not among them, nor a
            last row of which only a part is written.
        train: The numbers of the training rows: `"step"`, `"attempt"`, `"loss"` in nats a target, `"tokens_per_s"` and
            others. None where a row lacks a number.
        evaluations: The same of the evaluations. What lies inside an object goes by both names: `"without_memory/loss"`,
            `"scores/sst2/dev/accuracy"`.

    Raises:
        RunError: The folder is not a run, or a file of it is damaged.

    Example:
        >>> run = Run("runs/demo")
        >>> run.train["step"][-1], run.train["loss"][-1]
        (200, 4.92)
        >>> pandas.DataFrame(run.evaluations).plot("step", "ppl")
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        _check_is_run(self.path)
        # Before what it may write still: a run that is called done has all its rows.
        is_held, is_done = _is_held(self.path / "lock"), (self.path / "done").exists()
        self.config: dict[str, Any] = _read_config(self.path / "config.json")
        self.rows: list[dict[str, Any]] = list(_read_rows(self.path / "metrics.jsonl"))
        self.train: Columns = _columns(self.rows, "train")
        self.evaluations: Columns = _columns(self.rows, "eval")
        self.checkpoints: list[Checkpoint] = _checkpoints(self.path / "checkpoints")
        is_done = is_done or 0 < self.config.get("train", {}).get("steps", 0) <= self.step
        self.state: str = "training" if is_held else "done" if is_done else "stopped"

    @property
    def step(self) -> int:
        """The last step that a row or a checkpoint tells of, 0 before the first."""
        return max([row["step"] for row in self.rows] + [checkpoint.step for checkpoint in self.checkpoints], default=0)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self.state}, step {self.step})"


class Comparison(list[dict[str, Any]]):
    """Runs side by side, a dictionary for each, all with the same keys. Printed, and in a notebook, it is a table."""

    def __str__(self) -> str:
        table = [list(self[0]), *(map(_shown, row.values()) for row in self)] if self else []
        cells = [list(map(str, row)) for row in table]
        widths = [max(map(len, column)) for column in zip(*cells)]
        return "\n".join("  ".join(map(str.rjust, row, widths)) for row in cells)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in (self[0] if self else ()))
        rows = ("".join(f"<td>{html.escape(_shown(value))}</td>" for value in row.values()) for row in self)
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def compare(runs: Iterable[Run | str | os.PathLike[str]], measure: str = "loss", largest: bool = False) -> Comparison:
    """What differs between the configurations of runs, and how far each has come.

    Args:
        runs: Runs, or their folders.
        measure: Column of `Run.evaluations`.
        largest: The largest value is the best, as of `"accuracy"` or of fine-tuning's `"value"`, and not the smallest.

    Returns:
        For each run `run` (its folder), the configuration keys that are not the same in all, `step`, `train_loss` (the last,
        in nats a target), `eval_MEASURE` (the last), `best_eval_MEASURE` and its `best_step`. None where there is none.

    Raises:
        RunError: One of the folders is not a run, or damaged.
        ValueError: There are evaluations, and none of them has the measure.

    Example:
        >>> print(compare(["runs/a", "runs/b"]))
           run  optim.lr  step  train_loss  eval_loss  best_eval_loss  best_step
        runs/a     0.001   100      2.4117    2.34699         2.34699        100
        runs/b      0.01   100    0.629925   0.588455        0.588455        100
    """
    read = [run if isinstance(run, Run) else Run(run) for run in runs]
    measures = sorted({name for run in read for name in run.evaluations} - {"step", "attempt"})
    if measures and measure not in measures:
        raise ValueError(f"no evaluation has the measure {measure!r}; there are {', '.join(measures)}")
    configs = [{f"{name}.{key}": keys[key] for name, keys in run.config.items() for key in keys} for run in read]
    # A run that has not written its configuration yet does not differ from the others.
    known = [config for config in configs if config]
    names = dict.fromkeys(name for config in known for name in config if name != "run.dir")
    differ = [name for name in names if any(config.get(name) != known[0].get(name) for config in known)]
    rows = []
    for run, config in zip(read, configs):
        trained, found = _points(run.train, "loss"), _points(run.evaluations, measure)
        last, best = found[-1], (max if largest else min)(found, key=lambda point: point[0] or 0)
        rows.append(
            {"run": str(run.path), **{name: config.get(name) for name in differ}, "step": run.step}
            | {"train_loss": trained[-1][0], f"eval_{measure}": last[0]}
            | {f"best_eval_{measure}": best[0], "best_step": best[1]}
        )
    return Comparison(rows)


def _points(columns: Columns, name: str) -> list[tuple[float | None, float | None]]:
    """The values of a column that are there, with their steps; where there is none, one point without either."""
    points = zip(columns.get(name, []), columns["step"])
    return [point for point in points if point[0] is not None] or [(None, None)]


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _check_is_run(path: Path) -> None:
    seeds = sorted(path.glob("seed-*"))
    # A job that has only just begun has its lock alone, and so has the folder of several seeds.
    files = ("config.json", "metrics.jsonl", "checkpoints", *(() if seeds else ("lock", "launch")))
    if not any((path / name).exists() for name in files):
        hint = f"name the run of a seed, such as {seeds[0]}" if seeds else None
        raise RunError(path, "it is not a run" if path.exists() else "no such folder", hint=hint)


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise RunError(path, f"it is not JSON: {error}", getattr(error, "lineno", None)) from error
    if not isinstance(config, dict) or not all(isinstance(keys, dict) for keys in config.values()):
        raise RunError(path, "it is not an object of sections")
    return config


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            # Nothing follows the last whole line, or a row that is being written.
            if number == len(lines):
                return
            raise RunError(path, "it is not JSON", number) from error
        if not (isinstance(row, dict) and isinstance(row.get("kind"), str) and isinstance(row.get("step"), int)):
            raise RunError(path, "it is not an object with `kind` and `step`", number)
        yield row


def _columns(rows: list[dict[str, Any]], kind: str) -> Columns:
    found = [dict(_numbers(row)) for row in rows if row["kind"] == kind]
    names = dict.fromkeys(["step", "attempt", *(name for row in found for name in row)])
    return {name: [row.get(name) for row in found] for name in names}


def _numbers(value: object, name: str = "") -> Iterator[tuple[str, float]]:
    """Numbers by the names on their way, as `metrics.csv` has them."""
    below = f"{name}/" if name else ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, below + key)
    elif isinstance(value, list):
        for inner in filter(lambda one: isinstance(one, dict), value):
            # An element goes by the name that it tells; a list of metrics by what it is in.
            if "name" in inner and "value" in inner:
                yield from _numbers(inner["value"], f"{name.removesuffix('/metrics')}/{inner['name']}")
            elif "task" in inner and "split" in inner:
                yield from _numbers(inner, f"{below}{inner['task']}/{inner['split']}")


def _checkpoints(folder: Path) -> list[Checkpoint]:
    """The manifest is written last and removed first: a folder without one is not whole."""
    found = []
    for path in folder.glob("step-*/MANIFEST.json"):
        if match := re.fullmatch(r"step-(\d+)", path.parent.name):
            found.append(Checkpoint(int(match[1]), path.parent))
    return sorted(found)


def _is_held(lock: Path) -> bool:
    """Whether a job trains in the folder, as far as its lock tells; some file systems have none."""
    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
