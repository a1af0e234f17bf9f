#!/usr/bin/env python3
"""The Python module of the wheel and the notebook: runs that are made up, a stand-in for the program, and the program itself.

    SEGUE_BIN=target/debug/segue scripts/tests/python_test.py      without the variable: `segue` on PATH
"""

from __future__ import annotations

import ast
import contextlib
import faulthandler
import fcntl
import importlib.util
import io
import itertools
import json
import math
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
import unittest.mock
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "scripts/dist/segue"
NOTEBOOK = ROOT / "docs/notebooks/runs.ipynb"
sys.path.insert(0, str(PACKAGE.parent))
sys.dont_write_bytecode = True

import segue  # noqa: E402

# Prints its words as the result, and does before what they ask for.
STAND_IN = """\
#!{python}
import json, os, signal, sys
words = sys.argv[1:]
if "listen" in words:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGINT])
    for expected in [signal.SIGUSR1, signal.SIGINT][: 1 + ("--twice" in words)]:
        print("ready", file=sys.stderr, flush=True)
        assert signal.sigwait([signal.SIGUSR1, signal.SIGINT]) == expected
    print("stopped by", expected.name, file=sys.stderr)
    sys.exit(75)
if "die" in words:
    os.kill(os.getpid(), signal.SIGKILL)
for word in words:
    if word.startswith("--print="):
        print(word.removeprefix("--print="))
    if word.startswith("--say="):
        print(word.removeprefix("--say="), file=sys.stderr)
    if word.startswith("--code="):
        sys.exit(int(word.removeprefix("--code=")))
print(json.dumps({{"words": words, "filler": "x" * 200_000 * ("--long" in words)}}))
"""


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)

    def write(self, name: str, content: str | bytes = "") -> pathlib.Path:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def rows(self, *rows: dict[str, Any], run: str = "run", end: str = "\n") -> pathlib.Path:
        return self.write(f"{run}/metrics.jsonl", "\n".join(map(json.dumps, rows)) + end)

    def run_fails(self, path: pathlib.Path, code: int, line: int | None = None) -> segue.RunError:
        """The error of a run in `run` that cannot be read."""
        with self.assertRaises(segue.RunError) as raised:
            segue.Run(self.place / "run")
        error = raised.exception
        self.assertEqual((error.path, error.line, error.exit_code), (path, line, code))
        self.assertTrue(str(error).startswith(f"{path}:{line}: " if line else f"{path}: "), str(error))
        return error


class Reading(Case):
    def test_columns_are_of_one_length_and_lack_what_a_row_lacks(self) -> None:
        self.rows(
            {"kind": "train", "step": 1, "attempt": 1, "loss": 3.5, "grad_norm": None, "task": "sst2"},
            {"kind": "train", "step": 2, "attempt": 2, "loss": None, "grad_norm": 0.5},
            {"kind": "eval", "step": 2, "attempt": 2, "loss": 3.0, "best": True, "without_memory": {"loss": 4.0}},
        )
        run = segue.Run(self.place / "run")
        self.assertEqual(run.train, {"step": [1, 2], "attempt": [1, 2], "loss": [3.5, None], "grad_norm": [None, 0.5]})
        self.assertEqual(
            run.evaluations, {"step": [2], "attempt": [2], "loss": [3.0], "without_memory/loss": [4.0]}
        )
        self.assertEqual(run.rows[0]["task"], "sst2")

    def test_scores_go_by_task_split_and_metric(self) -> None:
        metrics = [{"name": "accuracy", "value": 0.9}]
        scores = [{"task": "sst2", "split": "dev", "count": 60, "metrics": metrics}]
        self.rows({"kind": "eval", "step": 3, "value": 0.9, "ids": [1, 2], "scores": scores})
        found = segue.Run(self.place / "run").evaluations
        named = {"scores/sst2/dev/count": [60], "scores/sst2/dev/accuracy": [0.9]}
        self.assertEqual(found, {"step": [3], "attempt": [None], "value": [0.9], **named})

    def test_a_row_that_is_being_written_is_passed_over(self) -> None:
        row = json.dumps({"kind": "train", "step": 1, "loss": 2.0, "task": "café"}, ensure_ascii=False).encode()
        for length in range(len(row)):
            self.write("run/metrics.jsonl", row + b"\n" + row[:length])
            self.assertEqual(segue.Run(self.place / "run").train["step"], [1], row[:length])
        # Only the end of its line is missing.
        self.write("run/metrics.jsonl", row + b"\n" + row)
        self.assertEqual(segue.Run(self.place / "run").train["step"], [1, 1])

    def test_a_damaged_row_is_named_by_file_and_line(self) -> None:
        good = '{"kind": "train", "step": 1}'
        for bad in ('{"kind": "tra', "\0\0\0", "", "[1]", '{"kind": "train"}', '{"step": 1}', '{"kind": "train", "step": "1"}'):
            path = self.write("run/metrics.jsonl", f"{good}\n{bad}\n{good}\n")
            self.run_fails(path, 65, 2)

    def test_a_damaged_configuration_is_named(self) -> None:
        self.run_fails(self.write("run/config.json", '{\n"train": {'), 65, 2)
        for bad in (b'"\xff"', b"[1]", b'{"train": 3}'):
            self.run_fails(self.write("run/config.json", bad), 65)

    def test_what_is_no_run_is_refused(self) -> None:
        run = self.place / "run"
        self.run_fails(run, 66)
        run.mkdir()
        self.assertIsNone(self.run_fails(run, 66).hint)
        self.write("run/seed-7/metrics.jsonl")
        self.write("run/lock")
        self.assertIn("seed-7", str(self.run_fails(run, 66).hint))
        self.assertEqual(segue.Run(run / "seed-7").step, 0)

    def test_a_run_that_has_only_just_begun_is_empty(self) -> None:
        self.write("run/lock")
        run = segue.Run(self.place / "run")
        nothing: dict[str, list[float | None]] = {"step": [], "attempt": []}
        self.assertEqual((run.train, run.evaluations), (nothing, nothing))
        self.assertEqual((run.config, run.checkpoints, run.step, run.state), ({}, [], 0, "stopped"))
        self.assertEqual(segue.compare([run])[0]["train_loss"], None)

    def test_steps_that_were_made_again_are_there_once(self) -> None:
        self.rows({"kind": "train", "step": 1, "attempt": 1}, {"kind": "train", "step": 2, "attempt": 2})
        self.write("run/metrics.superseded.jsonl", '{"kind": "train", "step": 2, "attempt": 1}\n{"kind": "tr\n')
        run = segue.Run(self.place / "run")
        self.assertEqual((run.train["step"], run.train["attempt"]), ([1, 2], [1, 2]))

    def test_the_state_is_that_of_the_lock_and_of_the_end(self) -> None:
        lock = self.write("run/lock")
        self.write("run/config.json", '{"train": {"steps": 4}}')
        with open(lock, "wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.assertEqual(segue.Run(self.place / "run").state, "training")
        self.assertEqual(segue.Run(self.place / "run").state, "stopped")
        self.rows({"kind": "train", "step": 4})
        self.assertEqual(segue.Run(self.place / "run").state, "done")
        self.rows({"kind": "train", "step": 3})
        self.assertEqual(segue.Run(self.place / "run").state, "stopped")
        self.write("run/done")
        self.assertEqual(segue.Run(self.place / "run").state, "done")

    def test_checkpoints_are_whole_and_in_the_order_of_their_steps(self) -> None:
        others = ("damaged-step-00000004", ".step-00000005.part", "step-x")
        for name in ("step-100000000", "step-00000020", "step-00000003", *others):
            self.write(f"run/checkpoints/{name}/MANIFEST.json")
        self.write("run/checkpoints/step-00000050/model.safetensors")
        run = segue.Run(str(self.place / "run"))
        self.assertEqual([checkpoint.step for checkpoint in run.checkpoints], [3, 20, 100000000])
        self.assertEqual(run.checkpoints[1].path, self.place / "run/checkpoints/step-00000020")
        self.assertEqual(run.step, 100000000)

    def test_errors_pass_from_process_to_process(self) -> None:
        error = self.run_fails(self.place / "run", 66)
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(copy), copy.path, copy.exit_code), (str(error), error.path, 66))


class Comparing(Case):
    def three(self) -> list[pathlib.Path]:
        for name, lr, losses in (("a", 0.001, (3.0, 2.5)), ("b", 0.01, (2.0, 2.25)), ("c", 0.1, ())):
            config = {"run": {"dir": name}, "optim": {"lr": lr, "kind": "adam"}, "model": {"cutoffs": [1, 2]}}
            self.write(f"{name}/config.json", json.dumps(config))
            evaluations = [{"kind": "eval", "step": 10 * (i + 1), "loss": loss} for i, loss in enumerate(losses)]
            self.rows({"kind": "train", "step": 10, "loss": 4.0}, *evaluations, run=name)
        return [self.place / name for name in "abc"]

    def test_it_has_the_keys_that_differ_and_the_last_and_best_measures(self) -> None:
        folders = self.three()
        row = {"run": str(folders[1]), "optim.lr": 0.01, "step": 20, "train_loss": 4.0}
        row |= {"eval_loss": 2.25, "best_eval_loss": 2.0, "best_step": 10}
        found = segue.compare([folders[0], segue.Run(folders[1]), str(folders[2])])
        self.assertEqual(found[1], row)
        self.assertEqual([list(one) for one in found], [list(row)] * 3)
        self.assertEqual([one["best_step"] for one in found], [20, 10, None])
        largest = segue.compare(folders, largest=True)
        self.assertEqual([one["best_eval_loss"] for one in largest], [3.0, 2.25, None])

    def test_a_measure_that_is_nowhere_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "'ppl'; there are loss"):
            segue.compare(self.three(), "ppl")
        # As long as nothing is evaluated, nobody knows what it will have.
        self.assertIsNone(segue.compare([self.place / "c"], "ppl")[0]["eval_ppl"])

    def test_a_run_without_a_configuration_yet_differs_in_nothing(self) -> None:
        folders = self.three()
        self.write("d/lock")
        found = segue.compare([self.place / "d", *folders])
        self.assertEqual(found[0]["optim.lr"], None)
        self.assertNotIn("optim.kind", found[0])

    def test_it_is_a_table(self) -> None:
        os.chdir(self.place)
        self.addCleanup(os.chdir, ROOT)
        self.three()
        found = segue.compare(["a", "c"])
        expected = """
            run  optim.lr  step  train_loss  eval_loss  best_eval_loss  best_step
              a     0.001    20           4        2.5             2.5         20
              c       0.1    10           4          -               -          -
        """
        self.assertEqual(str(found), textwrap.dedent(expected).strip("\n ").replace("\nrun", "run", 1))
        found[0]["run"] = "<a>"
        self.assertIn("<td>&lt;a&gt;</td><td>0.001</td>", found._repr_html_())
        self.assertEqual(str(segue.compare([])), "")


class Interrupting(io.StringIO):
    """Interrupts this process, as Ctrl-C does, with each line that has `word`."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.word in text:
            signal.raise_signal(signal.SIGINT)
        return written


class Calling(Case):
    def setUp(self) -> None:
        super().setUp()
        program = self.write("program", STAND_IN.format(python=sys.executable))
        program.chmod(0o755)
        patch = unittest.mock.patch.dict(os.environ, {"SEGUE_BIN": str(program)})
        patch.start()
        self.addCleanup(patch.stop)

    def words(self, *args: str, **options: Any) -> str:
        return " ".join(segue.run(*args, **options)["words"])

    def fails(self, *args: str, **options: Any) -> segue.SegueError:
        with self.assertRaises(segue.SegueError) as raised:
            segue.run(*args, progress=False, **options)
        return raised.exception

    def test_keywords_become_options(self) -> None:
        self.assertEqual(self.words("data build"), "--json data build")
        for options, expected in (
            ({"tokenizer_kind": "bpe", "vocab_size": 400}, "--tokenizer-kind=bpe --vocab-size=400"),
            ({"dry_run": True, "json_too": False, "seed": None, "from_": "x"}, "--dry-run --from=x"),
            ({"train": ["a", pathlib.Path("b")], "lr": 1e-5}, "--train=a --train=b --lr=1e-05"),
            ({"prompt": "-x y", "flags": ()}, "--prompt=-x y"),
            ({"ranks": 3}, "--ranks=3"),
        ):
            self.assertEqual(self.words("x", **options), f"--json x {expected}")
        self.assertEqual(self.words("average", "a", output="b"), "--json average a --output=b")

    def test_overrides_are_toml(self) -> None:
        for value, expected in (
            (0.5, "0.5"),
            (True, "true"),
            (pathlib.Path("a b"), "a b"),
            ("0.5", "0.5"),
            (["csv", 'a"b', "é"], r'["csv", "a\"b", "é"]'),
            ([[1, 2.0], [False]], "[[1, 2.0], [false]]"),
        ):
            self.assertEqual(self.words("x", overrides={"a.b": value, "c.d": None}), f"--json x a.b={expected}")
        for refused in ({"a": 1}, b"a", [None]):
            with self.assertRaises(TypeError):
                segue.run("x", overrides={"a.b": refused})

    def test_ranks_are_launched(self) -> None:
        self.assertEqual(
            self.words("pretrain", config="demo", ranks=2, overrides={"a.b": 1}),
            "--json launch -n 2 pretrain --config=demo a.b=1",
        )
        self.assertEqual(self.words("pretrain", ranks=2, dry_run=True), "--json pretrain --dry-run --ranks=2")
        told = {"run": "a", "result": {"run": "a", "step": 3}, "exit_code": 0}
        # The stand-in prints its own object last.
        with unittest.mock.patch("segue.program._call", return_value=(0, told, [])):
            self.assertEqual(segue.run("finetune", ranks=2), {"run": "a", "step": 3})
            self.assertEqual(segue.run("launch", "finetune"), told)

    def test_the_last_line_of_stdout_is_the_result_however_long(self) -> None:
        found = segue.run("x", "--long", print=["text", "{}"], progress=False)
        self.assertEqual(len(found["filler"]), 200_000)

    def test_lines_of_stderr_are_passed_on(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            segue.run("x", say=["step 1", "step 2"])
            segue.run("x", say=["silent"], progress=False)
        self.assertEqual(shown.getvalue(), "step 1\nstep 2\n")

    def test_an_interrupt_lets_the_program_stop_by_itself(self) -> None:
        with contextlib.redirect_stderr(Interrupting("ready")) as shown:
            with self.assertRaises(KeyboardInterrupt):
                segue.run("listen")
            self.assertEqual(shown.getvalue(), "ready\nstopped by SIGUSR1\n")
            with self.assertRaises(KeyboardInterrupt):
                segue.run("listen", twice=True)
        self.assertTrue(shown.getvalue().endswith("ready\nready\nstopped by SIGINT\n"))

    def test_errors_say_what_the_program_said(self) -> None:
        error = self.fails("x", print='{"error": "a", "hint": "b", "rank": 0}', code=78)
        self.assertEqual((error.message, error.hint, error.exit_code, str(error)), ("a", "b", 78, "a\nhint: b"))
        error = self.fails("x", print='{"error": "a", "hint": null}', code=65)
        self.assertEqual((error.hint, str(error)), (None, "a"))
        error = self.fails("x", say=["y", "segue: error: no torch", "hint: install it"], code=69)
        self.assertEqual((error.message, error.hint, error.exit_code, error.result), ("no torch", "install it", 69, None))
        error = self.fails("data verify", print='{"bad": [1]}', code=65)
        self.assertEqual((error.message, error.result), ("segue data verify ended with exit code 65", {"bad": [1]}))
        error = self.fails("x", print='{"preempted": true, "step": 3}', code=75)
        self.assertEqual((error.exit_code, error.result), (75, {"preempted": True, "step": 3}))
        self.assertEqual(self.fails("die").exit_code, 137)
        # A result that is none.
        self.assertEqual(self.fails("x", print="[1]", code=0).exit_code, 0)

    def test_errors_of_ranks_are_those_of_the_job(self) -> None:
        inner = {"error": "step 2: the loss is NaN", "hint": "b", "exit_code": 80}
        error = self.fails("pretrain", ranks=2, print=json.dumps({"result": inner, "why": "c"}), code=80)
        self.assertEqual((error.message, error.hint), ("step 2: the loss is NaN", "b"))
        killed = {"result": None, "first_failure": {"rank": 1, "what": "exited on signal 9 (Killed)."}}
        error = self.fails("pretrain", ranks=2, print=json.dumps(killed), code=137)
        self.assertEqual((error.message, error.hint), ("exited on signal 9 (Killed).", None))

    def test_a_program_that_is_not_there_is_unavailable(self) -> None:
        with unittest.mock.patch.dict(os.environ, {"SEGUE_BIN": str(self.place / "nothing")}):
            error = self.fails("x")
        self.assertEqual(error.exit_code, 69)
        self.assertIn("SEGUE_BIN", str(error.hint))
        with unittest.mock.patch.dict(os.environ, {"SEGUE_BIN": "", "PATH": str(self.place)}):
            self.assertEqual(self.fails("x").message, "cannot start segue: No such file or directory")

    def test_the_wheel_starts_its_own_program(self) -> None:
        site = self.place / "site"
        shutil.copytree(PACKAGE, site / "segue")
        self.write("site/segue/BUILD.json", '{"libtorch": "0.0.9", "mpi": "", "mpi_library": "libc.so.6"}')
        self.write("site/segue/bin/segue", (self.place / "program").read_bytes()).chmod(0o755)
        call = "import segue\ntry: print(segue.run('x', 'wheel'))\nexcept segue.SegueError as e: print(e.exit_code, e)"
        environment = os.environ | {"PYTHONPATH": str(site), "SEGUE_BIN": "/nothing"}

        def told() -> str:
            command = [sys.executable, "-c", call]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

        # Whatever torch this Python has, it is not of this version.
        self.assertRegex(told(), "^69 the Python package torch is .*\nhint: .*torch==0.0.9$")
        self.write("site/torch/__init__.py")
        self.write("site/torch/lib/libtorch_cpu.so")
        self.write("site/torch-0.0.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 0.0.9\n")
        self.assertEqual(ast.literal_eval(told())["words"], ["--json", "x", "wheel"])

    def test_the_wheel_has_every_file_of_the_module(self) -> None:
        spec = importlib.util.spec_from_file_location("wheel", PACKAGE.parent / "wheel.py")
        assert spec is not None and spec.loader is not None
        wheel = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(wheel)
        files = sorted(path.name for path in PACKAGE.iterdir() if path.is_file())
        packed = itertools.islice(wheel.members(self.place, {"version": "0"}), len(files))
        self.assertEqual([name for name, _, _ in packed], [f"segue/{name}" for name in files])
        self.assertIn("py.typed", files)


class Program(Case):
    """The program itself."""

    def build(self) -> dict[str, object]:
        """A corpus, and the settings of a run on it."""
        text = self.write("text", "".join(f"the cat saw {n} of the {n * n % 97} mice\n" for n in range(400)))
        options: dict[str, Any] = {"preset": "sentences", "tokenizer_kind": "byte", "split": "0.9,0.1,0"}
        segue.run("data build", train=text, output=self.place / "corpus", progress=False, **options)
        return {"run.dir": self.place / "run", "data.corpus": self.place / "corpus", "train.steps": 20}

    def test_a_wrong_key_has_a_hint_and_an_exit_code(self) -> None:
        with self.assertRaises(segue.SegueError) as raised:
            segue.run("pretrain", config="tiny", overrides={"train.lane": 4}, progress=False)
        error = raised.exception
        self.assertEqual((error.exit_code, error.hint), (78, "did you mean `train.lanes`?"))
        self.assertIn("`train.lane`", error.message)

    def test_a_wrong_option_has_too(self) -> None:
        with self.assertRaises(segue.SegueError) as raised:
            segue.run("pretrain", confg="tiny", progress=False)
        self.assertEqual(raised.exception.exit_code, 64)
        self.assertIn("'--confg'", raised.exception.message)
        self.assertIn("'--config'", str(raised.exception.hint))

    def test_two_ranks_train_to_the_numbers_of_one(self) -> None:
        settings = self.build()
        found = []
        for ranks in (None, 2):
            folder = self.place / f"run-{ranks}"
            with contextlib.redirect_stderr(io.StringIO()) as shown:
                result = segue.run("pretrain", config="tiny", ranks=ranks, overrides=settings | {"run.dir": folder})
            self.assertIn("\nstep 20/20: loss ", shown.getvalue())
            run = segue.Run(folder)
            self.assertEqual((result["step"], run.step, run.state, run.train["step"]), (20, 20, "done", [10, 20]))
            self.assertEqual(result["evaluation"]["loss"], run.evaluations["loss"][-1])
            self.assertEqual(run.config["optim"]["lr"], 0.002)
            found.append((run.train["loss"], run.evaluations["ppl"]))
        self.assertEqual(*found)

    def test_a_run_that_is_interrupted_goes_on_from_its_checkpoint(self) -> None:
        settings = self.build() | {"train.steps": 20_000, "checkpoint.every": 0}
        with contextlib.redirect_stderr(Interrupting("step 10/")), self.assertRaises(KeyboardInterrupt):
            segue.run("pretrain", config="tiny", overrides=settings)
        run = segue.Run(self.place / "run")
        self.assertEqual((run.state, len(run.checkpoints)), ("stopped", 1))
        reached = run.checkpoints[0].step
        self.assertTrue(10 <= reached < 20_000, reached)
        # A row that an attempt has written after its last checkpoint, and died.
        with open(run.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": "train", "step": reached + 1, "attempt": 1}) + '\n{"kind": "tr')
        self.assertEqual(segue.Run(run.path).step, reached + 1)
        segue.run("pretrain", config="tiny", overrides=settings | {"train.steps": reached + 5}, progress=False)
        again = segue.Run(run.path)
        self.assertEqual((again.state, again.step, again.train["attempt"][-1]), ("done", reached + 5, 2))
        self.assertNotIn(reached + 1, again.train["step"])
        self.assertEqual(again.train["step"], sorted(set(again.train["step"])))

    def test_what_a_failed_check_has_found_is_in_the_error(self) -> None:
        self.build()
        shard = next((self.place / "corpus").rglob("train-00000.bin"))
        shard.write_bytes(shard.read_bytes()[:-1] + b"?")
        with self.assertRaises(segue.SegueError) as raised:
            segue.run("data verify", self.place / "corpus", progress=False)
        self.assertEqual(raised.exception.exit_code, 65)
        assert raised.exception.result is not None
        self.assertEqual(len(raised.exception.result["bad"]), 1)


def code_cells() -> Iterator[str]:
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


class Notebook(Case):
    def test_its_cells_run_from_top_to_bottom(self) -> None:
        names: dict[str, Any] = {}
        with contextlib.ExitStack() as stack:
            stack.enter_context(unittest.mock.patch.object(tempfile, "tempdir", str(self.place)))
            stack.enter_context(unittest.mock.patch.dict(os.environ, {"MPLBACKEND": "agg"}))
            shown = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            progress = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            for cell in code_cells():
                exec(compile(cell, str(NOTEBOOK), "exec"), names)
        self.assertIn("step 100/100: loss ", progress.getvalue())
        slow, fast = names["table"]
        self.assertEqual((slow["optim.lr"], fast["optim.lr"]), (0.001, 0.01))
        self.assertEqual(list(slow), ["run", "optim.lr", "step", "train_loss", "eval_loss", "best_eval_loss", "best_step"])
        self.assertEqual([run.evaluations["step"] for run in names["runs"]], [[25, 50, 75, 100]] * 2)
        # Words and the end of a line: 2.25 + 1 + 2.5 or so of the former, all sentences being equally probable.
        self.assertAlmostEqual(names["floor"], math.log(64) / (2.75 + 1 + 2.75 + 1), delta=0.01)
        # The text that is evaluated is no more than a sample: 200 sentences, of the probability 1/64 each.
        self.assertTrue(0.95 * names["floor"] < fast["eval_loss"] < 1.2 * names["floor"] < slow["eval_loss"], names["table"])
        self.assertIn(f"{fast['eval_loss']:.3f} nats a token", shown.getvalue())
        self.assertIn(names["sentence"], names["sentences"])

    def test_it_is_stored_without_what_it_has_printed(self) -> None:
        for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None))


if __name__ == "__main__":
    # A shell that starts a job in the background has it ignore interrupts, which tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A test that waits for ever is shown where it waits, and fails.
    faulthandler.dump_traceback_later(900, exit=True)
    unittest.main()
