#!/usr/bin/env python3
"""Times training steps of Hugging Face's XLNet or Transformer-XL on random tokens: forward, backward, clipping, fused Adam.

    peer_step.py SHAPE --device cpu|cuda --precision f32|tf32|bf16 --batches N,N,.. [--enough 1] [--steps 20] [--warmup 5]
                 [--transfo-xl DIR]

SHAPE is a JSON object of sizes, as kit/shapes.py writes it. The batches are tried in their order until --enough of them fit; each prints a
line of JSON. XLNet is that of the installed transformers; Transformer-XL is made of the files in DIR. The weights are in single precision,
and bf16 is autocast, as these models are trained. A step of XLNet is one of its pre-training: two streams, an order of each half, memory of
reused length. Times are those of the device from the end of a step to the end of the next: nothing waits for the device in between but
what a model itself asks of it.
"""

import argparse
import gc
import json
import statistics
import time
import warnings

import torch

LEARNING_RATE = 1e-4
BATCHES = 4  # batches of random tokens, taken in turn
SEED = 1
NO_ROOM = ("out of memory", "ALLOC_FAILED")


# ---- the models


def xlnet(shape):
    from transformers import XLNetConfig, XLNetLMHeadModel
    return XLNetLMHeadModel(XLNetConfig(
        vocab_size=shape["vocab"], d_model=shape["d_model"], n_layer=shape["layers"], n_head=shape["heads"], d_inner=shape["d_inner"],
        ff_activation="gelu_new", dropout=shape["dropout"], mem_len=shape["mem"], reuse_len=shape["reuse"], use_mems_train=True))


def transfo_xl(shape, folder):
    from kit.public_transfo_xl import load
    config, model = load(folder)
    made = model(config(
        vocab_size=shape["vocab"], cutoffs=shape["cutoffs"], d_model=shape["d_model"], d_embed=shape["d_embed"], n_head=shape["heads"],
        d_head=shape["d_head"], d_inner=shape["d_inner"], div_val=shape["div_val"], n_layer=shape["layers"], mem_len=shape["mem"],
        clamp_len=-1, same_length=False, untie_r=shape["untie_r"], dropout=shape["dropout"], dropatt=shape["dropatt"],
        init_std=shape["init_std"]))
    keep_embedding_in_single_precision(made.transformer.word_emb)
    return made


def keep_embedding_in_single_precision(embedding):
    """Takes the adaptive embedding out of autocast: it copies what it has projected into single precision, which torch refuses for bf16."""
    forward = embedding.forward

    def outside(ids):
        with torch.autocast(ids.device.type, enabled=False):
            return forward(ids)
    embedding.forward = outside


# ---- what they read


def xlnet_batch(shape, lanes, generator):
    """Random ids with targets in both halves, half of them in each, visible to what comes later in a random order.

    ids: [lanes, segment]; perm_mask: [lanes, segment, segment], 1 where a row does not see a column; target_mapping: [lanes, targets, segment].
    """
    segment, reuse, targets = shape["segment"], shape["reuse"], shape["predict"]
    ids = torch.randint(0, shape["vocab"], (lanes, segment), generator=generator)
    order = torch.cat([half_order(lanes, reuse, generator), reuse + half_order(lanes, segment - reuse, generator)], dim=1)
    later = targets // 2
    place = order - torch.where(torch.arange(segment) < reuse, 0, reuse)
    length = torch.where(torch.arange(segment) < reuse, reuse, segment - reuse)
    count = torch.where(torch.arange(segment) < reuse, targets - later, later)
    chosen = place >= length - count  # the last of each half's order
    hidden = chosen[:, None, :] & (order[:, :, None] <= order[:, None, :])
    at = chosen.nonzero()[:, 1].view(lanes, targets)
    segments = (torch.arange(segment) >= segment * 3 // 4).long().expand(lanes, segment)
    return {"input_ids": ids, "perm_mask": hidden.float(), "token_type_ids": segments, "labels": ids.gather(1, at),
            "target_mapping": torch.nn.functional.one_hot(at, segment).float()}


def half_order(lanes, length, generator):
    """A random order of `length` places for each lane: [lanes, length]."""
    return torch.rand(lanes, length, generator=generator).argsort(dim=1)


def transfo_xl_batch(shape, lanes, generator):
    """Random ids; the model predicts each from those before it."""
    ids = torch.randint(0, shape["vocab"], (lanes, shape["segment"]), generator=generator)
    return {"input_ids": ids, "labels": ids.clone()}


# ---- the step


class Trainer:
    """A model with its optimizer, and the memory of its lanes."""

    def __init__(self, shape, device, precision, folder):
        torch.manual_seed(SEED)
        torch.set_float32_matmul_precision("highest" if precision == "f32" else "high")
        self.shape, self.device, self.half = shape, torch.device(device), precision == "bf16"
        self.is_xlnet = shape["model"] == "xlnet"
        self.model = (xlnet(shape) if self.is_xlnet else transfo_xl(shape, folder)).to(self.device).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE, fused=True)

    def batches(self, lanes):
        generator = torch.Generator().manual_seed(SEED)
        make = xlnet_batch if self.is_xlnet else transfo_xl_batch
        return [{name: value.to(self.device) for name, value in make(self.shape, lanes, generator).items()} for _ in range(BATCHES)]

    def step(self, batch, memory):
        """One step: its loss on the device, and the memory for the next."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half):
            out = self.model(**batch, mems=memory)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.shape["clip"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return out.loss.detach(), [layer.detach() for layer in out.mems]

    def forget(self):
        """Gives back what a batch that did not fit has left behind."""
        self.optimizer.zero_grad(set_to_none=True)
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


class Stopwatch:
    """Moments of the device, asked for without waiting."""

    def __init__(self, device):
        self.on_card, self.moments = device.type == "cuda", []

    def mark(self):
        if self.on_card:
            moment = torch.cuda.Event(enable_timing=True)
            moment.record()
        else:
            moment = time.perf_counter()
        self.moments.append(moment)

    def intervals(self):
        """Seconds from each moment to the next."""
        if self.on_card:
            torch.cuda.synchronize()
            return [first.elapsed_time(second) / 1e3 for first, second in zip(self.moments, self.moments[1:])]
        return [second - first for first, second in zip(self.moments, self.moments[1:])]


def measure(trainer, lanes, warmup, steps):
    """Figures of a batch size."""
    on_card = trainer.device.type == "cuda"
    batches, memory, losses = trainer.batches(lanes), None, []
    if on_card:
        torch.cuda.reset_peak_memory_stats()
    watch = Stopwatch(trainer.device)
    for number in range(warmup + steps):
        if number == warmup:
            watch.mark()
        loss, memory = trainer.step(batches[number % BATCHES], memory)
        losses.append(loss)
        if number >= warmup:
            watch.mark()
    times = sorted(watch.intervals())
    middle = statistics.median(times)
    return {"batch": lanes, "fits": True, "step_s": middle, "step_p95_s": times[int(0.95 * (len(times) - 1))],
            "tokens_per_s": lanes * trainer.shape["segment"] / middle, "first_loss": losses[0].item(), "loss": losses[-1].item(),
            "peak_bytes": torch.cuda.max_memory_allocated() if on_card else None,
            "params": sum(parameter.numel() for parameter in trainer.model.parameters())}


def try_batch(trainer, lanes, args):
    """Figures, or that the batch does not fit."""
    try:
        return measure(trainer, lanes, args.warmup, args.steps)
    except RuntimeError as error:  # torch.OutOfMemoryError is one, and what cuBLAS says is another
        if not any(words in str(error) for words in NO_ROOM):
            raise
        return {"batch": lanes, "fits": False}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", type=json.loads)
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--precision", choices=["f32", "tf32", "bf16"], required=True)
    parser.add_argument("--batches", type=lambda text: [int(word) for word in text.split(",")], required=True)
    parser.add_argument("--enough", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--transfo-xl", metavar="DIR")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    trainer, fitting = Trainer(args.shape, args.device, args.precision, args.transfo_xl), 0
    for lanes in args.batches:
        found = try_batch(trainer, lanes, args)
        print(json.dumps(found), flush=True)
        fitting += found["fits"]
        if fitting >= args.enough:
            break
        trainer.forget()


if __name__ == "__main__":
    main()
