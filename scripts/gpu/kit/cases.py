"""The cases of gpu-test. Each is a function of a `Bench` that returns a line of what it has found, or raises."""

import dataclasses
import hashlib
import json
import math
import os
import pathlib
import shutil
import signal
import sys
import time
from collections.abc import Callable

from kit.program import Failed, Segue, Skip, call, last_object

# Steps of the small Transformer-XL of tiny.toml.
PRECISION_STEPS = 200
LAST_STEPS = 50  # over these the losses of a precision are compared
LOSS_TOLERANCE = 0.01  # relative
RESUME_STEPS, CHECKPOINT_EVERY = 240, 40
# What is done with a trained model.
USED_STEPS, TUNED_STEPS, WRITTEN = 60, 20, 20
EVALUATION_TOLERANCE = 1e-4  # relative, of losses in single precision
WORDS = "the a film story actor plot scene is was of and".split()
BAD_CONFIGURATION = 78  # exit code of a configuration that asks for what cannot be had
PAUSE = 0.002  # seconds between two looks for a checkpoint
# A shape whose memory is compared with what a dry run counts.
MEMORY_RECIPE, MEMORY_MICRO_BATCH = "nvidia-wt103-base.toml", 4
# Errors of a torch that cannot be imported, which is no fault of Segue's.
NOT_IMPORTED = ("ImportError", "ModuleNotFoundError", "OSError")
TORCH_SAYS = """
import json, torch
here = torch.cuda.is_available()
card = torch.cuda.get_device_properties(0) if here else None
print(json.dumps({"available": here, "name": card and card.name, "bytes": card and card.total_memory}))
"""


@dataclasses.dataclass
class Bench:
    """What a case works with."""
    kit: object
    torch: object
    device: str
    work: pathlib.Path
    data: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.segue = Segue(self.kit, self.torch)

    def device_key(self):
        """The setting that chooses the device of a run."""
        if self.segue.has_key("train", "device"):
            return [f"train.device={self.device}"]
        return self.only_cpu("the configuration has no `train.device` yet")

    def device_option(self, command):
        """The option that chooses the device of a command."""
        if self.segue.offers(command, "--device"):
            return ["--device", self.device]
        return self.only_cpu(f"`segue {command}` has no --device yet")

    def only_cpu(self, why):
        """Nothing: a program that does not choose computes on the CPU."""
        if self.device == "cuda":
            raise Skip(why)
        return []

    def tiny(self, name, *settings):
        """The words of a run of a small model on the kit's corpus, in a folder of its own."""
        return ["pretrain", "--config", self.kit.recipes / "tiny.toml", f"data.corpus={self.kit.corpus}",
                f"run.dir={self.work / name}", *self.device_key(), *settings]

    def python(self, *words):
        """Runs a program of torch's in the environment that the kit was started in, and returns its object."""
        return last_object(call([sys.executable, *words]))


# ---- the host


def host(bench):
    """Libraries, device and memory, as Segue and torch see them."""
    findings = {each["what"]: each for each in bench.segue.json("doctor", codes=(0, 1))["findings"]}
    bench.data["doctor"] = findings
    doubts = list(bench.kit.doubts(bench.torch))
    if any(doubt.startswith("torch is") for doubt in doubts):
        raise Failed("; ".join(doubts))
    gpu = findings["GPU"]
    said = [f"libtorch {findings['libtorch']['found']}", f"GPU: {gpu['found']}", *(f"warning: {doubt}" for doubt in doubts)]
    if "NCCL" in findings:
        said.append(f"NCCL: {findings['NCCL']['found']}")
    if bench.device == "cuda":
        seen = bench.python("-c", TORCH_SAYS)
        bench.data["torch"] = seen
        if seen["available"] and gpu["state"] != "ok":
            raise Failed(f"torch sees {seen['name']}, Segue does not: {gpu['found']}; {gpu['advice']}")
    if bench.segue.has_own_mpi:
        said.append("no MPI library: one rank")
    return "; ".join(said)


def ceilings(bench):
    """Products and copies of torch: what other figures are held against."""
    try:
        found = bench.python(bench.kit.root / "ceilings.py", bench.device)
    except Failed as why:
        if bench.device == "cpu" and any(name in str(why) for name in NOT_IMPORTED):
            raise Skip(f"torch cannot be imported: {why}") from None
        raise
    bench.data.update(found)
    products = ", ".join(f"{name} {value:.3g}" for name, value in found["tflops"].items())
    return f"TFLOP/s of products: {products}; a copy {found['copy_gb_per_s']:.0f} GB/s"


# ---- numbers


def parity(kind):
    """A case that holds a model against Hugging Face's numbers."""
    def compare(bench):
        device = bench.device_option("parity")
        folders = [config.parent for config in sorted(bench.kit.cases.glob("*/config.json"))
                   if json.loads(config.read_text())["model_type"] == kind]
        if not folders:
            raise Failed(f"the kit has no case of model type {kind}")
        worst = max(distance(bench, folder, device) for folder in folders)
        return f"{len(folders)} set(s) of numbers; the largest error is {worst:.2g} of its limit"
    return compare


def distance(bench, folder, device):
    """The largest error of a set of numbers, in units of its limit."""
    found = bench.segue.json("parity", "--model", folder, "--cases", folder / "cases.safetensors", *device, codes=(0, 1))
    ratios = {group["name"]: group["error"] / group["limit"] for group in found["groups"]}
    bench.data[folder.name] = ratios
    if not found["holds"]:
        worst = max(found["groups"], key=lambda group: group["error"] / group["limit"])
        raise Failed(f"{folder.name}: {worst['name']}: error {worst['error']:.2e}, limit {worst['limit']:.0e}, at {worst['worst']}")
    return max(ratios.values())


def losses(run):
    """The loss of each step that is in a run's log."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["kind"] == "train"]


def precision(bench):
    """The same run in every precision, held against single precision."""
    if not bench.segue.has_key("train", "precision"):
        raise Skip("the configuration has no `train.precision` yet")
    curves = {}
    for name in ("f32", "tf32", "bf16", "fp16"):
        key = "train.tf32=true" if name == "tf32" else f"train.precision={name}"
        bench.segue.run(*bench.tiny(name, key, f"train.steps={PRECISION_STEPS}", "log.every=1"))
        curves[name] = losses(bench.work / name)
    bench.data["curves"] = {name: curve[9::10] for name, curve in curves.items()}
    apart = {name: difference(curve, curves["f32"]) for name, curve in curves.items() if name != "f32"}
    said = ", ".join(f"{name} {value:.2%}" for name, value in apart.items())
    if not max(apart.values()) <= LOSS_TOLERANCE or any(map(math.isnan, apart.values())):
        raise Failed(f"losses of the last {LAST_STEPS} steps differ from those of f32 by {said}; limit {LOSS_TOLERANCE:.0%}")
    return f"mean losses of the last {LAST_STEPS} of {PRECISION_STEPS} steps differ from those of f32 by {said}"


def difference(curve, reference):
    """How far apart the means at the ends of two curves are, relative to the second."""
    if len(curve) != len(reference):
        raise Failed(f"{len(curve)} losses, expected {len(reference)}")
    ends = [sum(losses[-LAST_STEPS:]) / len(losses[-LAST_STEPS:]) for losses in (curve, reference)]
    return abs(ends[0] - ends[1]) / ends[1]


# ---- exactness


def tables(run):
    """A hash of every table of the newest checkpoint: weights, optimizer, memory."""
    newest = run / "checkpoints/latest"
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(newest.glob("*.safetensors"))}


def check_same(found, expected, whose):
    """Fails where two checkpoints are not the same bytes."""
    if not expected:
        raise Failed("the run without a fault left no checkpoint")
    if different := sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)):
        raise Failed(f"{whose}: other bytes in {', '.join(different)}")


def run_settings():
    return [f"train.steps={RESUME_STEPS}", f"checkpoint.every={CHECKPOINT_EVERY}"]


def kill_after_checkpoint(bench, words, run):
    """Starts a run and kills it as soon as it has published a checkpoint."""
    process = bench.segue.start(*words)
    while not any((run / "checkpoints").glob("step-*")) and process.poll() is None:
        time.sleep(PAUSE)
    process.send_signal(signal.SIGKILL)
    code = process.wait()
    if code != -signal.SIGKILL:
        raise Failed(f"the run ended with exit code {code} before it could be killed")


def resume(bench):
    """A run that is killed and gone on with ends with the bytes of one that nothing happened to."""
    bench.segue.run(*bench.tiny("undisturbed", *run_settings()))
    killed = bench.tiny("killed", *run_settings())
    kill_after_checkpoint(bench, killed, bench.work / "killed")
    bench.segue.run(*killed)
    expected = tables(bench.work / "undisturbed")
    check_same(tables(bench.work / "killed"), expected, "the killed run")
    return f"{len(expected)} tables of step {RESUME_STEPS} are the same after SIGKILL"


def two_ranks(bench):
    """Two ranks, which share the card where there is one, end with the bytes of one."""
    mpirun = shutil.which("mpirun")
    if bench.segue.has_own_mpi or mpirun is None:
        raise Skip("the host has no Open MPI (`mpirun` and libmpi.so.40, Debian's openmpi-bin), and the kit's stand-in for it runs one rank")
    bench.segue.run(*bench.tiny("one", *run_settings()))
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []

    def both(words, env, codes=(0,)):
        call([mpirun, "-n", "2", "--bind-to", "none", "--oversubscribe", *root, bench.segue.program, *words], env, codes)

    both(bench.tiny("two", *run_settings()), bench.segue.environment)
    expected = tables(bench.work / "one")
    check_same(tables(bench.work / "two"), expected, "two ranks")
    said = f"{len(expected)} tables of step {RESUME_STEPS} are the same on one rank and on two"
    if bench.device == "cuda" and bench.segue.has_key("train", "collectives"):
        shared = {**bench.segue.environment, "CUDA_VISIBLE_DEVICES": "0"}
        both(bench.tiny("refused", "train.collectives=nccl", *run_settings()), shared, codes=(BAD_CONFIGURATION,))
        said += "; NCCL is refused where they share a card"
    return said


# ---- what trained models are used for


def used(bench):
    """A model that was trained on the device evaluates, writes and is fine-tuned there as on the CPU."""
    devices = {name: [bench.device_option(name), ["--device", "cpu"] if bench.device == "cuda" else []] for name in ("eval", "generate")}
    bench.segue.run(*bench.tiny("used", f"train.steps={USED_STEPS}"))
    run, on_cpu = bench.work / "used", ["train.device=cpu"] if bench.device == "cuda" else []
    found = [bench.segue.json("eval", "--model", run, "--corpus", bench.kit.corpus, *device)["evaluation"]["loss"]
             for device in devices["eval"]]
    texts = [bench.segue.json("generate", "--model", run, "--prompt", "A run is", "--tokens", WRITTEN, "--top-k", 1, *device)["tokens"]
             for device in devices["generate"]]
    tuned = [fine_tuned(bench, run, name, keys) for name, keys in (("tuned", bench.device_key()), ("tuned-on-cpu", on_cpu))]
    bench.data.update(losses=found, texts=texts, tuned=tuned)
    apart = {"an evaluation": [abs(found[0] - found[1]) / found[1], EVALUATION_TOLERANCE],
             "fine-tuning": [max(abs(a - b) / b for a, b in zip(*tuned, strict=True)), LOSS_TOLERANCE]}
    said = ", ".join(f"{what} {value:.1e}" for what, (value, _) in apart.items())
    if not all(value <= limit for value, limit in apart.values()):
        raise Failed(f"losses differ from those of the CPU by {said}; limits {EVALUATION_TOLERANCE} and {LOSS_TOLERANCE}")
    if texts[0] != texts[1] or len(texts[0]) != WRITTEN:
        raise Failed(f"the most probable {WRITTEN} tokens are {texts[0]} on the device and {texts[1]} on the CPU")
    return f"losses differ from those of the CPU by {said}; {WRITTEN} tokens are the same"


def fine_tuned(bench, model, name, keys):
    """Losses of telling good from bad, step by step; the best model answers at the end."""
    data = bench.work / f"{name}-data"
    data.mkdir()
    for split, lines in (("train", 64), ("dev", 32)):
        rows = [f"{' '.join(WORDS[(i * k) % len(WORDS)] for k in range(1, 5 + i % 4))} {('bad', 'good')[i % 2]}\t{i % 2}" for i in range(lines)]
        (data / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    run = bench.work / name
    scores = bench.segue.json("finetune", "--model", model, "--task", "sst2", "--data", data, f"run.dir={run}", "train.lanes=16",
                              f"train.steps={TUNED_STEPS}", "log.every=1", *keys)["scores"]
    if [score["count"] for score in scores] != [32]:
        raise Failed(f"{name}: 32 answers expected, and there are {scores}")
    return losses(run)


# ---- memory


def memory(bench):
    """The peak of a large shape's step, beside what a dry run counts."""
    missing = [option for option in ("--config", "--device") if not bench.segue.offers("bench step", option)]
    if missing:
        raise Skip(f"`segue bench step` has no {' and no '.join(missing)} yet")
    recipe, lanes = bench.kit.recipes / MEMORY_RECIPE, MEMORY_MICRO_BATCH
    peak = bench.segue.json("bench", "step", "--config", recipe, "--device", bench.device, "--micro-batch", lanes,
                            "--steps", "3").get("peak_bytes")
    if peak is None:
        raise Skip("`segue bench step` reports no `peak_bytes` yet")
    parts = bench.segue.json("pretrain", "--config", recipe, f"train.lanes={lanes}", f"train.micro_batch={lanes}",
                             "--dry-run")["cost"]["memory_per_rank"]
    state = parts["weights"] + parts["gradients"] + parts["optimizer"]
    whole = state + parts["segment_memory"] + parts["activations"]["most"]
    bench.data.update(peak=peak, state=state, counted=whole)
    if peak < state:
        raise Failed(f"a peak of {peak} bytes is less than the state of {state} bytes")
    return f"{lanes} lanes of {MEMORY_RECIPE}: peak {peak / 2**30:.2f} GiB, {peak / whole:.2f} of what a dry run counts at most"


# ---- the list


@dataclasses.dataclass(frozen=True)
class Case:
    """A case, its limit in seconds, and where it runs: `anywhere`, on the chosen `device`, or on a `card` alone."""
    name: str
    limit: int
    run: Callable
    where: str = "device"


# The name stands for all tests of bin/device: gpu-test runs them one by one.
DEVICE_TESTS = Case("device", 180, None)
CASES = [
    Case("host", 120, host, "anywhere"),
    Case("ceilings", 40, ceilings),
    DEVICE_TESTS,
    Case("parity-transfo-xl", 20, parity("transfo-xl")),
    Case("parity-xlnet", 20, parity("xlnet")),
    Case("precision", 60, precision),
    Case("resume", 60, resume),
    Case("two-ranks", 60, two_ranks),
    Case("memory", 40, memory, "card"),
    Case("used", 60, used),
]
