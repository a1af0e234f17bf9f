#!/usr/bin/env python3
"""What the programs of the GPU kit do around Segue, tried with stand-ins for the binary, its device tests, torch and the driver.

    scripts/tests/gpu_kit_logic_test.py      a C compiler and Python's standard library are all it needs
"""

import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
GPU = HERE.parent / "gpu"
STAND_INS = HERE / "gpu_kit"
ROOT = HERE.parents[1]
sys.path.insert(0, str(GPU))
sys.dont_write_bytecode = True

from kit import card, contest, entrants, group, libtest, shapes  # noqa: E402
from kit.place import Torch, find_torch  # noqa: E402
from kit.program import parse_config  # noqa: E402
from kit.report import table  # noqa: E402

# Answers of a driver with one card.
DRIVER = """
int cuInit(int flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = COUNT; return 0; }
int cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
int cuDeviceGet(int *card, int number) { *card = number; return 0; }
int cuDeviceGetUuid(char *own, int card) { for (int i = 0; i < 16; i++) own[i] = 16 * i + card; return 0; }
"""
# Prints what it is asked for in the place of a card's name.
NVIDIA_SMI = """#!/bin/sh
for word; do case $word in --id=*) id=${word#--id=};; esac; done
echo "${id:-the first}, 9.0, 580.65.06, 81559 MiB"
"""
TORCH = """
class cuda:
    is_available = staticmethod(lambda: True)
    get_device_properties = staticmethod(lambda number: type("card", (), {"name": "a card", "total_memory": 1 << 30}))
"""


def compiled(folder, name, source, *flags):
    """A C program or library."""
    (folder / f"{name}.c").write_text(source)
    subprocess.run(["cc", "-o", folder / name, folder / f"{name}.c", *flags], check=True)
    return folder / name


def compiled_driver(folder, count, version=13000):
    """A driver with `count` cards, for CUDA of this version."""
    compiled(folder, "libcuda.so.1", DRIVER.replace("COUNT", str(count)).replace("VERSION", str(version)), "-shared", "-fPIC")


class Scratch(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)


class StandInForMpi(Scratch):
    def build(self):
        """A library and a program of it; then the stand-in in a folder of its own."""
        library = compiled(self.folder, "libmpi.so.40", "#include <string.h>\nint MPI_Send(void) { return 0; }\n"
                           "int MPI_Initialized(int *f) { *f = 1; return 0; }\nchar world[777];\nint other;\n",
                           "-shared", "-fPIC", "-Wl,-soname,libmpi.so.40")
        program = compiled(self.folder, "program", "#include <stdio.h>\nint MPI_Send(void), MPI_Initialized(int *);\n"
                           "extern char world[];\nint main(int n, char **w) { int f = 7; MPI_Initialized(&f); world[776] = 1;\n"
                           'printf("%d\\n", f); fflush(stdout); return n > 1 ? MPI_Send() : 0; }\n', "-fPIC", library)
        source = subprocess.run([GPU / "pack/mpi_stub.py", program, library], check=True, capture_output=True, text=True).stdout
        (self.folder / "stub").mkdir()
        compiled(self.folder / "stub", "libmpi.so.40", source, "-shared", "-fPIC", "-Wl,-soname,libmpi.so.40")
        return program, source

    def run_with(self, program, *words):
        env = {**os.environ, "LD_LIBRARY_PATH": str(self.folder / "stub")}
        return subprocess.run([program, *words], env=env, capture_output=True, text=True)

    def test_one_rank_starts_and_a_call_is_refused_by_name(self):
        program, _ = self.build()
        alone = self.run_with(program)
        self.assertEqual((alone.returncode, alone.stdout), (0, "0\n"))
        called = self.run_with(program, "send")
        self.assertEqual(called.returncode, 69)
        self.assertRegex(called.stderr, r"\Asegue: error: MPI_Send: .*\n\Z")

    def test_it_holds_what_the_program_asks_for_and_nothing_else(self):
        _, source = self.build()
        self.assertIn("char world[777]", source)
        self.assertNotIn("other", source)


class Starts(Scratch):
    """The file that unpacks the kit, under its three names, over an archive whose programs say what they are given."""

    def setUp(self):
        super().setUp()
        inside = self.folder / "segue-gpu-kit"
        inside.mkdir()
        for name in ("gpu-test", "gpu-bench", "segue"):
            (inside / name).write_text(f"import sys\nprint({name!r}, *sys.argv[1:])\nsys.exit(3)\n")
        subprocess.run(["tar", "-cJf", "segue-gpu-kit.tar.xz", "segue-gpu-kit"], cwd=self.folder, check=True)
        for name in ("start", "gpu-test", "gpu-bench"):
            shutil.copy(GPU / "start", self.folder / name)

    def say(self, *words, python=sys.executable):
        done = subprocess.run([self.folder / words[0], *words[1:]], env={**os.environ, "PYTHON": python},
                              capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def test_programs_are_called_by_their_names_or_behind_start(self):
        for words in (("gpu-test", "--out", "a b"), ("start", "gpu-test", "--out", "a b")):
            self.assertEqual(self.say(*words), (3, "gpu-test --out a b\n", ""))
        self.assertEqual(self.say("gpu-bench"), (3, "gpu-bench\n", ""))
        self.assertEqual(self.say("start", "segue", "gpu-test"), (3, "segue gpu-test\n", ""))

    def test_what_is_wrong_names_the_file_that_was_called(self):
        self.assertEqual(self.say("start", "segues"),
                         (64, "", "segue: error: usage: start gpu-test|gpu-bench|segue [OPTIONS]\n"))
        for words in (("gpu-bench",), ("start", "gpu-bench")):
            code, _, error = self.say(*words, python="/no/python")
            self.assertEqual((code, error.splitlines()[1]), (
                69, f"hint: name the interpreter that has torch: PYTHON=/path/to/python ./{' '.join(words)}"))


class Packed(Scratch):
    def test_the_oldest_glibc_is_that_of_the_newest_symbol(self):
        spec = importlib.util.spec_from_file_location("facts", GPU / "pack/facts.py")
        facts = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(facts)
        # memcpy has had this version since glibc 2.14, and nothing in this program a newer one.
        binary = compiled(self.folder, "binary.so", "#include <string.h>\nvoid *f(void *a, const void *b, size_t n) "
                          "{ return memcpy(a, b, n); }\n", "-shared", "-fPIC", "-O0")
        self.assertEqual(facts.oldest_glibc(binary), "2.14")


class DeviceTests(Scratch):
    def run_tests(self, names, limit):
        told = []
        with open(self.folder / "log", "wb") as log:
            verdicts = libtest.run(STAND_INS / "device.py", names, limit, dict(os.environ), log, told.append)
        self.assertEqual(told, verdicts)
        return {verdict.name: (verdict.status, verdict.detail) for verdict in verdicts}

    def test_a_crash_costs_one_test(self):
        found = self.run_tests(["adds", "crashes", "fails", "is_left_out", "multiplies"], 20)
        self.assertEqual(found, {
            "adds": ("pass", ""), "crashes": ("crash", "the process ended with SIGSEGV"),
            "fails": ("fail", "assertion `left == right` failed: masks left: 1 right: 2"),
            "is_left_out": ("skip", "ignored, needs two cards"),
            "multiplies": ("pass", "")})
        self.assertIn("a library's warning in fails", (self.folder / "log").read_text())

    def test_what_comes_behind_a_hanging_test_is_told(self):
        found = self.run_tests(["adds", "hangs", "multiplies"], 10)
        self.assertEqual({name: status for name, (status, _) in found.items()},
                         {"adds": "pass", "hangs": "timeout", "multiplies": "timeout"})
        self.assertIn("not begun", found["multiplies"][1])

    def test_names_are_read(self):
        self.assertIn("hangs", libtest.names(STAND_INS / "device.py", dict(os.environ)))


class TimeLimits(Scratch):
    def test_children_end_with_their_program(self):
        mark = self.folder / "pid"
        with open(self.folder / "log", "wb") as log:
            code = group.run(["sh", "-c", f"sleep 600 & echo $! >{mark}; wait"], 10, log)
        self.assertIsNone(code)
        child = int(mark.read_text())
        for _ in range(100):
            if not alive(child):
                return
            time.sleep(0.02)
        self.fail(f"process {child} is still there")


def alive(process):
    """Whether a process runs; one that is dead and not yet waited for does not."""
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Shapes(unittest.TestCase):
    SIZES = {"model": "transfo-xl", "layers": 2, "d_model": 32, "heads": 2, "d_head": 16, "d_inner": 64, "d_embed": 32, "vocab": 500,
             "cutoffs": [], "div_val": 1, "mem": 32, "dropout": 0.1, "dropatt": 0.0, "segment": 32}

    def test_operations_with_words_drawn_evenly(self):
        self.assertEqual(shapes.training_flops(10.0, self.SIZES), 10.0)
        # Clusters of 100, 100 and 300 words; widths 32, 16 and 8.
        sizes = {**self.SIZES, "cutoffs": [100, 200], "div_val": 2}
        first, second = 2 * (32 * 16 + 16 * 100), 2 * (32 * 8 + 8 * 300)
        self.assertAlmostEqual(shapes.training_flops(10.0, sizes), 10.0 + 3 * (first * 0.2 + second * 0.6))

    def test_sizes_become_options_where_there_are_such(self):
        shape = shapes.Shape("tiny", pathlib.Path("tiny.toml"), self.SIZES, 1.0)
        self.assertEqual(shape.options()[:4], ["--model", "transfo-xl", "--layers", "2"])
        for other in ({"cutoffs": [100]}, {"d_head": 8}, {"dropatt": 0.1}):
            self.assertIsNone(shapes.Shape("tiny", pathlib.Path("tiny.toml"), {**self.SIZES, **other}, 1.0).options())

    def test_a_printed_configuration_is_read(self):
        text = '[a]\nb = 1e-5  # default\nc = "x  # y"  # f.toml\n# d is not set  # default\n\n[e]\nf = [1,2]  # g\nh = inf  # i\n'
        self.assertEqual(parse_config(text), {"a": {"b": 1e-5, "c": "x  # y"}, "e": {"f": [1, 2], "h": "inf"}})


class Entrant:
    """Gives figures from a table of tokens/s by batch."""

    def __init__(self, name, speeds, loss, order):
        self.name, self.speeds, self.loss, self.order = name, speeds, loss, order

    def measure(self, shape, precision, batches, enough, timing, time_left):
        self.order.append((self.name, timing, tuple(batches)))
        if self.speeds is None:
            raise entrants.Unable("not here")
        fitting = [batch for batch in batches if batch in self.speeds][:enough]
        return [entrants.Figures(batch, self.speeds[batch], 0.1, 0.2, 1 << 30, self.loss) for batch in fitting]


class Contests(unittest.TestCase):
    def race(self, ours, theirs, loss=6.0, own_best=True):
        order = []
        shape = shapes.Shape("tiny", pathlib.Path("tiny.toml"), {}, 2e6)
        plan = contest.Plan([shape], ["bf16"], [8, 4, 2], 2, "trial", "timing", own_best)
        race = contest.Contest(shape, "bf16", plan, lambda: 100)
        pair = [Entrant("we", ours, 6.0, order), Entrant("they", theirs, loss, order)]
        rows = list(race.rows(pair, {"bf16": 1e-3}, "NVIDIA H200"))
        return [(row["who"], row["batch"], row["tokens_per_s"]) for row in rows], race.notes, order, rows

    def test_both_run_what_fits_both_and_each_its_own_best(self):
        told, notes, order, rows = self.race({8: 80.0, 4: 50.0}, {4: 30.0, 2: 35.0})
        self.assertEqual(told, [("we", 4, 50.0), ("they", 4, 30.0), ("we", 8, 80.0), ("they", 2, 35.0)])
        timed = [name for name, timing, batches in order if timing == "timing" and batches == (4,)]
        self.assertEqual(timed, ["we", "they", "they", "we"])
        self.assertEqual(notes, [])
        # 50 tokens/s of 2 MFLOP are 0.1 of 1 GFLOP/s, and hardly anything of an H200.
        self.assertAlmostEqual(rows[0]["mfu_measured"], 0.1)
        self.assertAlmostEqual(rows[0]["mfu_datasheet"], 1e8 / 989e12)

    def test_who_cannot_run_is_told_and_the_other_runs_alone(self):
        told, notes, _, _ = self.race(None, {8: 10.0}, own_best=False)
        self.assertEqual((told, notes), ([("they", 8, 10.0)], ["tiny, bf16: we: not here"]))

    def test_kernels_that_a_card_goes_without_are_told_once(self):
        found = {"tokens_per_s": 5.0, "step_s": 0.1, "first_loss": 6.0, "loss": 5.0, "kernels": {"compiled": [], "missing": {"flash": "too little memory"}}}
        figures = entrants.Figures.of(8, found)

        class Lacking(Entrant):
            def measure(self, *_):
                return [figures]

        plan = contest.Plan([], ["bf16"], [8], 2, "trial", "timing", False)
        race = contest.Contest(shapes.Shape("tiny", pathlib.Path("tiny.toml"), {}, 2e6), "bf16", plan, lambda: 100)
        self.assertEqual(len(list(race.rows([Lacking("we", {}, 6.0, [])], {}, "NVIDIA H200"))), 1)
        self.assertEqual(race.notes, ["tiny, bf16: we: without kernels of its own, which makes it slower: flash: too little memory"])
        for none in (None, {"compiled": ["flash"], "missing": {}}):
            self.assertEqual(entrants.Figures.of(8, {**found, "kernels": none}).missing, ())

    def test_losses_that_differ_are_told(self):
        _, notes, _, _ = self.race({8: 1.0}, {8: 1.0}, loss=6.1)
        self.assertIn("losses differ by more than 1%: we 6.0000, they 6.1000", notes[0])


class Reports(unittest.TestCase):
    def test_cells_hold_no_marks_of_a_table(self):
        lines = table(["a", "b"], [["x | y\nz", None], [12345.6, 0.123456]])
        self.assertEqual(lines[2:], ["| x \\| y z | – |", "| 12,346 | 0.1235 |"])


class Cards(Scratch):
    def driver(self, count, version=13000):
        """The environment of a host with a driver and `count` cards."""
        compiled_driver(self.folder, count, version)
        return unittest.mock.patch.dict(os.environ, LD_LIBRARY_PATH=str(self.folder))

    def test_what_is_missing_is_named(self):
        torch = Torch(self.folder, "2.11.0", None)
        with self.driver(0):
            self.assertEqual(card.why_none(torch), "the NVIDIA driver has no card")
        with self.driver(1):
            self.assertIn("has no libtorch_cuda.so", card.why_none(torch))
            (self.folder / "lib").mkdir()
            (self.folder / "lib/libtorch_cuda.so").touch()
            self.assertIsNone(card.why_none(torch))

    def test_a_driver_that_is_too_old_is_named(self):
        (self.folder / "lib").mkdir()
        (self.folder / "lib/libtorch_cuda.so").touch()
        for cuda, version, why in [
            ("13.0", 12080, "the NVIDIA driver is for CUDA 12.8, and torch was built with CUDA 13.0"),
            ("12.8", 12040, None), ("13.0", 13000, None), ("12.8", 13000, None), (None, 12080, None),
        ]:
            with self.driver(1, version):
                self.assertEqual(card.why_none(Torch(self.folder, "2.11.0", None, cuda)), why)

    def test_the_cuda_of_torch_is_read(self):
        for line, cuda in [("cuda: Optional[str] = '13.0'", "13.0"), ("cuda = '12.8'", "12.8"), ("cuda: Optional[str] = None", None)]:
            (self.folder / "torch").mkdir(exist_ok=True)
            (self.folder / "torch/__init__.py").touch()
            (self.folder / "torch/version.py").write_text(f"__version__ = '2.11.0'\ndebug = False\n{line}\ngit_version = '77'\n")
            with unittest.mock.patch.object(sys, "path", [str(self.folder)]):
                importlib.invalidate_caches()
                self.assertEqual(find_torch(), Torch(self.folder / "torch", "2.11.0", "77", cuda))

    def test_facts_are_those_of_the_card_that_is_seen(self):
        (self.folder / "nvidia-smi").write_text(NVIDIA_SMI)
        (self.folder / "nvidia-smi").chmod(0o755)
        path = f"{self.folder}:{os.environ['PATH']}"
        with self.driver(1), unittest.mock.patch.dict(os.environ, PATH=path):
            found = card.facts()
        self.assertEqual(found, {"gpu": "GPU-00102030-4050-6070-8090-a0b0c0d0e0f0", "cc": "9.0", "driver": "580.65.06",
                                 "gpu_memory": "81559 MiB"})
        with unittest.mock.patch.dict(os.environ, PATH=path, LD_LIBRARY_PATH=""):
            self.assertEqual(card.facts()["gpu"], "the first")

    def test_a_datasheet_is_found_by_name(self):
        self.assertEqual(card.datasheet("NVIDIA H100 80GB HBM3", "tf32"), 495)
        self.assertIsNone(card.datasheet("a toy", "bf16"))
        self.assertIsNone(card.datasheet(None, "bf16"))


class WholeKit(Scratch):
    """gpu-test and gpu-bench over stand-ins, as on a host with a card."""

    def setUp(self):
        super().setUp()
        self.kit, self.host = self.folder / "kit", self.folder / "host"
        self.make_kit()
        self.make_host()

    def make_kit(self):
        for name in ("libexec", "bin", "share/segue/recipes", "corpus", "peers/transfo_xl"):
            (self.kit / name).mkdir(parents=True)
        for name in ("gpu-test", "gpu-bench"):
            shutil.copy(GPU / name, self.kit / name)
        shutil.copytree(GPU / "kit", self.kit / "kit")
        shutil.copy(STAND_INS / "segue.py", self.kit / "libexec/segue")
        shutil.copy(STAND_INS / "device.py", self.kit / "bin/device")
        shutil.copy(STAND_INS / "peer_step.py", self.kit / "peer_step.py")
        for recipe in ("tiny", "xlnet-large-v1", "nvidia-wt103-large", "nvidia-wt103-base"):
            shutil.copy(ROOT / f"configs/recipes/{recipe}.toml", self.kit / "share/segue/recipes")
        for name in ("transfo-xl", "xlnet"):
            shutil.copytree(ROOT / "tests/fixtures/parity" / name, self.kit / "cases" / name)
        build = {"commit": "abc", "version": "1.2.3", "libtorch": "2.11.0",
                 "kit": {"libc10_sha256": hashlib.sha256(b"c10").hexdigest(), "torch_commit": "77", "glibc": "2.17"}}
        (self.kit / "BUILD.json").write_text(json.dumps(build))

    def make_host(self):
        """A driver with one card, and packages torch and transformers."""
        (self.host / "torch/lib").mkdir(parents=True)
        (self.host / "transformers").mkdir()
        (self.host / "transformers/__init__.py").touch()
        (self.host / "torch/__init__.py").write_text(TORCH)
        (self.host / "torch/version.py").write_text("__version__ = '2.11.0+cu130'\ngit_version = '77'\n")
        (self.host / "torch/lib/libc10.so").write_bytes(b"c10")
        (self.host / "torch/lib/libtorch_cuda.so").touch()
        compiled_driver(self.host, 1)

    def start(self, program, *words, fault=""):
        env = {**os.environ, "PYTHONPATH": str(self.host), "LD_LIBRARY_PATH": str(self.host), "SEGUE_STAND_IN": fault,
               "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.Popen([sys.executable, self.kit / program, "--out", self.folder / "out", *words], env=env,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_program(self, program, *words, fault=""):
        """Exit code, output and the JSON that was written."""
        process = self.start(program, *words, fault=fault)
        out, error = process.communicate(timeout=120)
        path = self.folder / f"out/{program}.json"
        return process.returncode, out + error, json.loads(path.read_text()) if path.is_file() else None

    def cases(self, *names, fault="", more=()):
        code, said, found = self.run_program("gpu-test", *more, "--only", *names, fault=fault)
        return code, {case["name"]: (case["status"], case["detail"]) for case in found["cases"]}, said

    def test_everything_passes_on_a_card(self):
        code, found, said = self.cases("host", "parity-transfo-xl", "parity-xlnet", "precision", "resume", "used", "memory")
        self.assertEqual((code, {status for status, _ in found.values()}), (0, {"pass"}), said)
        self.assertIn("GPU: a card", found["host"][1])
        self.assertIn("bf16 0.00%", found["precision"][1])
        self.assertIn("1 tables of step 240", found["resume"][1])
        self.assertIn("20 tokens are the same", found["used"][1])
        self.assertIn("0.90 of what a dry run counts", found["memory"][1])
        page = (self.folder / "out/gpu-test.md").read_text()
        self.assertIn("| parity-xlnet | pass |", page)

    def test_faults_are_found(self):
        for fault, case, status, words in (
                ("parity", "parity-xlnet", "fail", "error 1.00e+00, limit 1e-05, at encode.loss"),
                ("crash", "parity-xlnet", "crash", "SIGSEGV"),
                ("curve", "precision", "fail", "bf16 16.67%"),
                ("bytes", "resume", "fail", "other bytes in model.safetensors"),
                ("loss", "used", "fail", "an evaluation 2.0e-01"),
                ("text", "used", "fail", "the most probable 20 tokens are [8, 0")):
            with self.subTest(fault):
                code, found, _ = self.cases(case, fault=fault)
                self.assertEqual((code, found[case][0]), (1, status))
                self.assertIn(words, found[case][1])

    def test_a_binary_without_the_options_is_passed_over_with_their_names(self):
        names = ["parity-xlnet", "precision", "resume", "used", "memory"]
        code, found, _ = self.cases(*names, fault="old")
        self.assertEqual((code, {status for status, _ in found.values()}), (0, {"skip"}))
        self.assertEqual(found["parity-xlnet"][1], "`segue parity` has no --device yet")
        self.assertEqual(found["resume"][1], "the configuration has no `train.device` yet")
        self.assertEqual(found["memory"][1], "`segue bench step` has no --config and no --device yet")

    def test_time_that_is_spent_is_told(self):
        code, found, _ = self.cases("parity-transfo-xl", "parity-xlnet", fault="hang", more=["--seconds", "1.5"])
        self.assertEqual(code, 1)
        self.assertEqual({status for status, _ in found.values()}, {"timeout"})
        self.assertIn("not begun", found["parity-xlnet"][1])

    def test_another_torch_is_told(self):
        (self.host / "torch/lib/libc10.so").write_bytes(b"other")
        self.assertIn("of another build", self.cases("host")[1]["host"][1])
        (self.host / "torch/version.py").write_text("__version__ = '2.12.0'\n")
        code, found, _ = self.cases("host")
        self.assertEqual((code, found["host"][0]), (1, "fail"))
        self.assertIn("torch is 2.12.0, expected 2.11.0", found["host"][1])

    def test_a_host_that_is_too_old_is_told_so(self):
        place = self.kit / "BUILD.json"
        build = json.loads(place.read_text())
        build["kit"]["glibc"] = "2.999"
        place.write_text(json.dumps(build))
        for program in ("gpu-test", "gpu-bench"):
            code, said, found = self.run_program(program)
            self.assertEqual((code, found), (69, None), said)
            self.assertRegex(said, r"segue: error: this host has glibc [\d.]+, and the kit was built for 2\.999 or newer\nhint: ")

    def test_without_a_driver_cases_of_the_card_are_passed_over(self):
        (self.host / "libcuda.so.1").write_bytes(b"")
        code, found, said = self.cases("parity-xlnet", "device", "memory")
        self.assertEqual((code, {status for status, _ in found.values()}), (69, {"skip"}))
        self.assertIn("no card can be used: no NVIDIA driver: ", said)
        self.assertIn("no NVIDIA driver", found["device"][1])

    def test_tests_of_the_device_are_cases_too(self):
        code, found, _ = self.cases("device/adds", "device/crashes", "device/fails")
        self.assertEqual((code, {name: status for name, (status, _) in found.items()}),
                         (1, {"device/adds": "pass", "device/crashes": "crash", "device/fails": "fail"}))
        self.assertIn("masks left: 1", found["device/fails"][1])

    def test_a_name_that_no_test_has_is_no_success(self):
        code, found, _ = self.cases("device/subtracts")
        self.assertEqual((code, found), (1, {"device": ("fail", "no test is called device/subtracts")}))

    def test_a_program_that_is_stopped_keeps_what_it_has_found(self):
        process = self.start("gpu-test", "--only", "host", "parity-xlnet", fault="hang")
        path = self.folder / "out/gpu-test.json"
        while not path.is_file() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertEqual([case["name"] for case in json.loads(path.read_text())["cases"]], ["host"])

    def test_a_race_gives_a_row_for_each_and_its_own_best(self):
        code, said, found = self.run_program("gpu-bench", "--only", "transfo-xl-base", "--precision", "bf16")
        rows = [(row["who"], row["batch"], row["tokens_per_s"]) for row in found["rows"]]
        self.assertEqual((code, rows), (0, [("Segue", 16, 16000.0), ("Hugging Face", 16, 14400.0)]), said)
        self.assertTrue(any("losses differ by more than 1%" in note for note in found["notes"]))
        self.assertEqual(found["rows"][0]["peak_gib"], 450 / 2**30)
        self.assertIn("| transfo-xl-base | Segue | bf16 | 16 |", (self.folder / "out/gpu-bench.md").read_text())

    def test_without_the_options_the_peer_runs_alone(self):
        code, _, found = self.run_program("gpu-bench", "--quick", "--only", "transfo-xl-base", fault="old")
        self.assertEqual((code, [row["who"] for row in found["rows"]]), (0, ["Hugging Face"]))
        self.assertTrue(any("`segue bench step` has no --device yet" in note for note in found["notes"]))


if __name__ == "__main__":
    unittest.main()
