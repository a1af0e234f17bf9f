#!/usr/bin/env python3
"""Fronts between likelihood and information of estimators of latent-variable models, on symbols that are all as frequent.

    python3 tests/bench/latent_fronts.py WORK [--trials 12] [--seeds 1,2,3] [--workers 2] [--only CURVE ..] [--symbols 100] [--set KEY=VALUE ..]

Each curve is a study by `segue tune` of that many random settings (learning rate, weight of information, order of Rényi's divergence), once for every
seed of proposals and training (Melis 2023, §5.7.1 and table 5.2). In WORK/table.md: the lowest loss of trials that tell at least so many nats, mean over
seeds ± 95 % by Student's distribution, and how the orderings of the thesis do. Studies that are there already are not made again. --set is for all trials, in a WORK of its
own: train.lanes=256 train.micro_batch=256, train.steps=16000 or model.d_model=256 show how far orderings hold (row V24), and what one sample makes of as much
computation as sixteen (row V19).
"""

import argparse
import csv
import math
import pathlib
import statistics
import subprocess

from alternate import ROOT, segue_binary

RECIPE = ROOT / "configs/recipes/latent-symbols.toml"
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # 97.5 % of its distribution for so many values
STEPS = 1000
# Shares of the most information there can be: those of the thesis' columns 2, 4, 6, 8, 8.5 and 9 of ln 10000.
LEVELS = [2 / 9.21, 4 / 9.21, 6 / 9.21, 8 / 9.21, 8.5 / 9.21, 9 / 9.21]

CATEGORICAL = {"model.latents": "categorical", "model.latent_count": 8}
DREG, IWAE = {"objective.estimator": "doubly-reparametrized"}, {"objective.estimator": "reparametrized"}
VIMCO, REINFORCE = CATEGORICAL | {"objective.estimator": "vimco"}, CATEGORICAL | {"objective.estimator": "reinforce"}


def of(estimator, samples, kind="renyi", information=0):
    return estimator | {"objective.samples": samples, "objective.kind": kind, "objective.information_samples": information}


# Of one sample all objectives are alike.
CURVES = {
    "DReG 1": of(DREG, 1, "kl"),
    "IWAE 16 Rényi": of(IWAE, 16),
    "DReG 16 KL": of(DREG, 16, "kl"),
    "DReG 16 Rényi": of(DREG, 16),
    "REINFORCE 16 Rényi": of(REINFORCE, 16),
    "VIMCO 16 KL": of(VIMCO, 16, "kl"),
    "VIMCO 16 Rényi": of(VIMCO, 16),
    "VIMCO 64 Rényi": of(VIMCO, 64),
    "VIMCO 16/1 Rényi": of(VIMCO, 16, information=1),
    "VIMCO 1/16 Rényi": of(VIMCO, 1, information=16),
}
# What the thesis finds: the first is the better one.
ORDERINGS = [
    ("DReG 16 KL", "DReG 1"), ("DReG 16 Rényi", "DReG 1"), ("DReG 16 Rényi", "IWAE 16 Rényi"), ("DReG 16 Rényi", "DReG 16 KL"),
    ("VIMCO 16 Rényi", "REINFORCE 16 Rényi"), ("VIMCO 16 Rényi", "VIMCO 16 KL"), ("VIMCO 16 Rényi", "VIMCO 64 Rényi"),
    ("VIMCO 16 Rényi", "VIMCO 16/1 Rényi"), ("VIMCO 16 Rényi", "VIMCO 1/16 Rényi"),
]


def toml(value):
    return f'"{value}"' if isinstance(value, str) else str(value)


def study(name, settings, seed, args):
    own = {
        "data.symbols": args.symbols, "train.steps": STEPS, "eval.every": 0, "checkpoint.every": 0, "log.every": STEPS,
        "log.tensorboard": "false", "train.seed": seed,
    }
    lines = [f'name = "{name}, seed {seed}"', f'recipe = "{RECIPE}"', f"trials = {args.trials}", 'search = "random"',
             f"seed = {seed}", "reruns = 0", 'front = "information_per_token"', "[set]"]
    lines += [f"{key} = {value if value == 'false' else toml(value)}" for key, value in (own | settings).items()]
    parameters = [("optim.lr", 1e-3, 1e-2, "log"), ("objective.information", 0.0, 0.98, "linear")]
    if settings["objective.kind"] == "renyi":
        parameters.append(("objective.order", 1.2, 8.0, "log"))
    for key, low, high, scale in parameters:
        lines += ["[[parameter]]", f'key = "{key}"', f"low = {low}", f"high = {high}", f'scale = "{scale}"']
    return "\n".join(lines) + "\n"


def points(name, settings, seed, args):
    """(information, loss) of each trial."""
    folder = args.work / f"{name.lower().replace(' ', '-').replace('/', '-').replace('é', 'e')}-{seed}"
    found = folder / "front.csv"
    if not found.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file = folder.with_suffix(".toml")
        file.write_text(study(name, settings, seed, args))
        # A trial whose loss is not a number has no place on a front.
        subprocess.run([segue_binary(), "tune", file, "--workers", str(args.workers), "--output", folder, *args.set], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with found.open() as rows:
        return [(float(row["information_per_token"]), float(row["loss"])) for row in csv.DictReader(rows)]


def lowest(found, least):
    return min((loss for told, loss in found if told >= least), default=None)


def interval(values):
    """Mean and half of its 95 % interval; none where a seed has no value."""
    if not values or None in values:
        return None
    half = STUDENT[len(values)] * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return statistics.mean(values), half


def table(fronts, levels):
    lines = ["| lowest loss where latents tell at least | " + " | ".join(f"{level:.2f}" for level in levels) + " |", "|---" * (1 + len(levels)) + "|"]
    for name, cells in fronts.items():
        told = ["–" if cell is None else f"{cell[0]:.3f} ± {cell[1]:.3f}" for cell in cells]
        lines.append(f"| {name} | " + " | ".join(told) + " |")
    return lines


def verdicts(fronts):
    lines = ["", "| better | than | at so many of both | apart by their intervals |", "|---|---|---|---|"]
    for better, other in ORDERINGS:
        if better not in fronts or other not in fronts:
            continue
        # Where only one of them is reached, that is the better one.
        both = [(a, b) for a, b in zip(fronts[better], fronts[other]) if a or b]
        holds = [b is None or (a is not None and a[0] < b[0]) for a, b in both]
        apart = [a is not None and b is not None and a[0] + a[1] < b[0] - b[1] for a, b in both]
        lines.append(f"| {better} | {other} | {sum(holds)} of {len(both)} | {sum(apart)} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(CURVES), metavar="CURVE")
    parser.add_argument("--symbols", type=int, default=100)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="for all trials")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    seeds = [int(seed) for seed in args.seeds.split(",")]
    levels = [share * math.log(args.symbols) for share in LEVELS]
    fronts = {}
    for name in args.only:
        found = [points(name, CURVES[name], seed, args) for seed in seeds]
        fronts[name] = [interval([lowest(of_seed, level) for of_seed in found]) for level in levels]
        text = "\n".join(table(fronts, levels) + verdicts(fronts)) + "\n"
        (args.work / "table.md").write_text(text)
        print(name, flush=True)
    print(text)


if __name__ == "__main__":
    main()
