#!/usr/bin/env python3
"""Answers as `segue` does to all that the kit asks, without computing anything: a stand-in for tests of the kit's own programs.

SEGUE_STAND_IN lists what goes wrong, separated by commas: parity, crash, hang, curve, bytes, loss, text, old.
"""

import json
import os
import pathlib
import signal
import sys
import time

FAULTS = os.environ.get("SEGUE_STAND_IN", "").split(",")
STEP_SECONDS = 0.001
BEGINNING = 6.0  # loss of the first step
ROOM = 16  # lanes that fit
HELP = {
    ("parity",): ["--device <DEVICE>"],
    ("eval",): ["--device <DEVICE>"],
    ("generate",): ["--device <DEVICE>"],
    ("bench", "step"): ["--config <FILE>", "--device <DEVICE>", "--precision <PRECISION>", "--micro-batch <N>"],
}
CONFIG = """[model]
cutoffs = [40,120,300]  # somewhere
d_embed = 0  # default
d_head = 0  # default
d_inner = 64  # default
d_model = 32  # default
div_val = 2  # default
dropatt = 0.0  # default
dropout = 0.1  # default
init_std = 0.02  # default
mem_len = 32  # default
model_type = "transfo-xl"  # default
n_head = 2  # default
n_layer = 2  # default
untie_r = false  # default
vocab_size = 500  # default

[optim]
clip = 0.25  # default

[train]
segment = 32  # default
"""
NEW_KEYS = 'device = "auto"  # default\nprecision = "f32"  # default\n'
MEMORY = {"weights": 100, "gradients": 100, "optimizer": 200, "segment_memory": 10, "activations": {"least": 50, "most": 90}}
COST = {"memory_per_rank": MEMORY, "training_flops_per_token": {"least": 1e6, "most": 2e6}}


def option(words, name, default=None):
    return words[words.index(name) + 1] if name in words else default


def doctor(_):
    return {"findings": [{"what": "libtorch", "state": "ok", "found": "2.11.0", "advice": None},
                         {"what": "GPU", "state": "ok", "found": "a card", "advice": None}]}


def parity(words):
    error = 1.0 if "parity" in FAULTS else 1e-6
    group = {"name": "loss", "tensors": 1, "error": error, "limit": 1e-5, "worst": "encode.loss"}
    assert option(words, "--device") in ("cpu", "cuda")
    return {"holds": error < 1e-5, "groups": [group], "exit_code": int(error > 1e-5)}


def bench(words):
    lanes = int(option(words, "--micro-batch"))
    if lanes > ROOM:
        sys.exit("segue: error: CUDA out of memory. Tried to allocate 2 GiB")
    assert pathlib.Path(option(words, "--config")).is_file()
    return {"tokens_per_s": 1000.0 * lanes, "step_s": 0.032, "step_p95_s": 0.04, "peak_bytes": 450, "loss": 5.0, "first_loss": BEGINNING}


def pretrain(words):
    if "--dry-run" in words:
        return {"cost": COST}
    if "--print-config" in words:
        print(CONFIG + ("" if "old" in FAULTS else NEW_KEYS))
        return None
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    train(pathlib.Path(settings["run.dir"]), int(settings["train.steps"]), int(settings.get("checkpoint.every", 1000)),
          settings.get("train.precision", "f32"))
    return None


def evaluate(words):
    return {"evaluation": {"loss": 4.0 if "loss" in FAULTS and option(words, "--device") == "cuda" else 5.0}}


def generate(words):
    first = 8 if "text" in FAULTS and option(words, "--device") == "cuda" else 7
    return {"tokens": [first, *range(int(option(words, "--tokens")) - 1)]}


def finetune(words):
    answers = (pathlib.Path(option(words, "--data")) / "dev.tsv").read_text().splitlines()[1:]
    pretrain(words)
    return {"scores": [{"count": len(answers)}]}


def train(run, steps, every, precision):
    """Goes on from the newest checkpoint; what a checkpoint holds is told by its step."""
    places = run / "checkpoints"
    places.mkdir(parents=True, exist_ok=True)
    done = max((int(place.name.removeprefix("step-")) for place in places.glob("step-*")), default=0)
    trace = "resumed" if done and "bytes" in FAULTS else ""
    with open(run / "metrics.jsonl", "a") as log:
        for step in range(done + 1, steps + 1):
            time.sleep(STEP_SECONDS)
            loss = BEGINNING + (1.0 if precision == "bf16" and "curve" in FAULTS else 0.0)
            log.write(json.dumps({"kind": "train", "step": step, "loss": loss}) + "\n")
            if step % every == 0:
                publish(places, step, trace)


def publish(places, step, trace):
    hidden = places / ".new"
    hidden.mkdir()
    (hidden / "model.safetensors").write_text(f"{step}{trace}")
    hidden.rename(places / f"step-{step:08}")
    latest = places / "latest"
    latest.unlink(missing_ok=True)
    latest.symlink_to(f"step-{step:08}")


def main():
    words = sys.argv[1:]
    if "--help" in words:
        print("\n".join(f"      {line}" for line in HELP[tuple(words[:-1])] if "old" not in FAULTS))
        return 0
    if words[0] == "parity" and "crash" in FAULTS:
        os.kill(os.getpid(), signal.SIGSEGV)
    if words[0] == "parity" and "hang" in FAULTS:
        time.sleep(600)
    found = {"doctor": doctor, "parity": parity, "bench": bench, "pretrain": pretrain, "eval": evaluate, "generate": generate,
             "finetune": finetune}[words[0]](words)
    if found is not None:
        print(json.dumps(found))
    return (found or {}).get("exit_code", 0)


sys.exit(main())
