"""Who is timed: Segue, and the public models under PyTorch. Both give the same figures of a shape, a precision and a batch size."""

import dataclasses
import importlib.util
import json
import subprocess
import sys

from kit.group import stop_group
from kit.program import complaint, last_object, signal_name

NO_ROOM = ("out of memory", "ALLOC_FAILED")
LIMIT = 90  # seconds for one program, whatever time is left


class Unable(Exception):
    """A figure cannot be had, for this reason."""


@dataclasses.dataclass(frozen=True)
class Timing:
    """How many steps are timed, and how many go before them."""
    steps: int
    warmup: int

    def options(self):
        return ["--steps", str(self.steps), "--warmup", str(self.warmup)]


@dataclasses.dataclass(frozen=True)
class Figures:
    """What was measured. Seconds of a step: the median, and the one that 95 of 100 do not exceed."""
    batch: int
    tokens_per_s: float
    step_s: float
    p95_s: float | None
    peak_bytes: int | None
    loss: float
    missing: tuple[str, ...] = ()  # kernels of its own that the card goes without, each with its reason

    @classmethod
    def of(cls, batch, found):
        missing = (found.get("kernels") or {}).get("missing") or {}
        return cls(batch, found["tokens_per_s"], found["step_s"], found.get("step_p95_s"), found.get("peak_bytes"),
                   found.get("first_loss", found["loss"]), tuple(f"{name}: {why}" for name, why in missing.items()))


def finish(words, time_left, log, env=None):
    """Runs a program within the time that is left: what it prints, and why it failed where it did."""
    limit, late = min(time_left, LIMIT), False
    if limit <= 0:
        raise Unable("no time left")
    print("$", *words, file=log, flush=True)
    process = subprocess.Popen([str(word) for word in words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, error = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        stop_group(process)
        (out, error), late = process.communicate(), True
    finally:
        stop_group(process)
    print(out + error, file=log, flush=True)
    if late:
        return out, f"stopped after {limit:.0f} s"
    if process.returncode == 0:
        return out, None
    ending = f"ended with {signal_name(process.returncode)}: " if process.returncode < 0 else ""
    return out, error if any(words in error for words in NO_ROOM) else ending + complaint(error)


class SegueEntrant:
    """`segue bench step`."""
    name = "Segue"

    def __init__(self, segue, device, log):
        self.segue, self.device, self.log = segue, device, log

    def choices(self, shape, precision):
        """The options that choose shape, device and precision, as far as this binary has them and they are needed."""
        words = []
        for option, value, default in (("--device", self.device, "cpu"), ("--precision", precision, "f32")):
            if self.segue.offers("bench step", option):
                words += [option, value]
            elif value != default:
                raise Unable(f"`segue bench step` has no {option} yet")
        if self.segue.offers("bench step", "--config"):
            return [*words, "--config", shape.recipe]
        if shape.options() is None:
            raise Unable("`segue bench step` has no --config yet, and no options for this shape")
        return [*words, *shape.options()]

    def measure(self, shape, precision, batches, enough, timing, time_left):
        """Figures of the first `enough` of the batches that fit."""
        found = []
        for batch in batches:
            words = [self.segue.program, "bench", "step", "--json", *self.choices(shape, precision), "--micro-batch", batch,
                     *timing.options()]
            if found and time_left() <= 0:
                break
            out, error = finish(words, time_left(), self.log, self.segue.environment)
            if error is None:
                found.append(Figures.of(batch, last_object(out)))
            elif not found and not any(words in error for words in NO_ROOM):
                raise Unable(error)
            if len(found) == enough:
                break
        return found


class PeerEntrant:
    """Hugging Face's models, by `peer_step.py` in the interpreter that runs the kit."""
    name = "Hugging Face"

    def __init__(self, kit, device, log):
        self.program, self.device, self.log = kit.root / "peer_step.py", device, log
        self.transfo_xl = kit.peers / "transfo_xl"

    def check(self, shape):
        if shape.sizes["model"] == "xlnet" and importlib.util.find_spec("transformers") is None:
            raise Unable("the package transformers is not installed")
        if shape.sizes["model"] == "transfo-xl" and not self.transfo_xl.is_dir():
            raise Unable("the kit was built without the public Transformer-XL (scripts/peers.sh)")

    def measure(self, shape, precision, batches, enough, timing, time_left):
        """As Segue's, by one process for all batches."""
        self.check(shape)
        words = [sys.executable, self.program, json.dumps(shape.sizes), "--device", self.device, "--precision", precision,
                 "--batches", ",".join(map(str, batches)), "--enough", enough, "--transfo-xl", self.transfo_xl, *timing.options()]
        out, error = finish(words, time_left(), self.log)
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        found = [Figures.of(line["batch"], line) for line in lines if line["fits"]]
        if error is not None and not found:
            raise Unable(error)
        return found
