"""A race of one shape in one precision: which batches fit, then all entrants in turn, and a row for each."""

import dataclasses
import math
import statistics

from kit import card
from kit.entrants import Unable
from kit.shapes import utilisation

LOSS_TOLERANCE = 0.01  # relative: both models are drawn from the same distributions, and read random words


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured, and how thoroughly."""
    shapes: list
    precisions: list
    batches: list  # the largest first
    rounds: int
    trial: object  # Timing of the search for batches
    timing: object
    own_best: bool  # whether the next smaller batch is tried as well, and each one's best is measured


class Contest:
    """A shape in a precision."""

    def __init__(self, shape, precision, plan, time_left):
        self.shape, self.precision, self.plan, self.time_left = shape, precision, plan, time_left
        self.notes = []

    def measure(self, entrant, batches, enough, timing):
        found = entrant.measure(self.shape, self.precision, batches, enough, timing, self.time_left)
        for missing in (why for figures in found for why in figures.missing):
            self.note(entrant, f"without kernels of its own, which makes it slower: {missing}")
        return found

    def trials(self, entrants):
        """Tokens/s of the largest batches that fit, by entrant and batch. Who cannot run is noted and left out."""
        found = {}
        for entrant in entrants:
            try:
                tried = self.measure(entrant, self.plan.batches, 2 if self.plan.own_best else 1, self.plan.trial)
                if not tried:
                    raise Unable(f"no batch fits, not even one of {self.plan.batches[-1]}")
                found[entrant] = {figures.batch: figures.tokens_per_s for figures in tried}
            except Unable as why:
                self.note(entrant, why)
        return found

    def note(self, entrant, why):
        note = f"{self.shape.name}, {self.precision}: {entrant.name}: {why}"
        if note not in self.notes:
            self.notes.append(note)

    def race(self, entrants, batch):
        """Figures of each round by entrant; who goes first changes from round to round."""
        seen = {entrant: [] for entrant in entrants}
        for number in range(self.plan.rounds):
            for entrant in entrants if number % 2 == 0 else reversed(entrants):
                try:
                    found = self.measure(entrant, [batch], 1, self.plan.timing)
                    if not found:
                        raise Unable("it no longer fits")
                    seen[entrant] += found
                except Unable as why:
                    self.note(entrant, f"batch {batch}, round {number + 1}: {why}")
        return seen

    def rows(self, entrants, ceilings, name):
        """All rows of the shape: everyone at the largest batch that fits all, then at a better one of its own."""
        trials = self.trials(entrants)
        if not trials:
            return
        batch = min(max(tried) for tried in trials.values())
        seen = self.race(list(trials), batch)
        self.compare_losses(seen)
        for entrant, figures in seen.items():
            if figures:
                yield self.row(entrant, figures, ceilings, name, "the largest batch that fits all")
        for entrant, tried in trials.items():
            best = max(tried, key=tried.get)
            if self.plan.own_best and best != batch:
                for figures in filter(None, self.race([entrant], best).values()):
                    yield self.row(entrant, figures, ceilings, name, "its own best batch")

    def compare_losses(self, seen):
        """Notes where the models do not begin with the same loss: then they are not the same model."""
        losses = {entrant.name: figures[0].loss for entrant, figures in seen.items() if figures}
        alike = losses and max(losses.values()) <= min(losses.values()) * (1 + LOSS_TOLERANCE)
        if losses and not (alike and all(map(math.isfinite, losses.values()))):
            told = ", ".join(f"{name} {loss:.4f}" for name, loss in losses.items())
            self.notes.append(f"{self.shape.name}, {self.precision}: losses differ by more than {LOSS_TOLERANCE:.0%}: {told}")

    def row(self, entrant, figures, ceilings, name, note):
        """Medians over rounds. `name` is that of the card, for its datasheet."""
        tokens_per_s = statistics.median(each.tokens_per_s for each in figures)
        p95 = [each.p95_s for each in figures if each.p95_s is not None]
        peaks = [each.peak_bytes for each in figures if each.peak_bytes is not None]
        flops = self.shape.flops_per_token
        return {
            "shape": self.shape.name, "who": entrant.name, "precision": self.precision, "batch": figures[0].batch,
            "tokens_per_s": tokens_per_s, "step_ms": 1e3 * statistics.median(each.step_s for each in figures),
            "p95_ms": 1e3 * max(p95) if p95 else None, "peak_gib": max(peaks) / 2**30 if peaks else None,
            "mfu_datasheet": utilisation(tokens_per_s, flops, card.datasheet(name, self.precision)),
            "mfu_measured": utilisation(tokens_per_s, flops, ceilings.get(self.precision)),
            "loss": figures[0].loss, "note": note, "rounds": [each.tokens_per_s for each in figures],
        }
