"""The shapes of steps that gpu-bench times: a recipe each, the same sizes for Segue and for its peer, and their operations."""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Shape:
    """A recipe, and what its merged configuration says."""
    name: str
    recipe: pathlib.Path
    sizes: dict
    flops_per_token: float

    def options(self):
        """The sizes as options of `segue bench step`; None where it has no options for them."""
        sizes = self.sizes
        plain = not sizes["cutoffs"] and sizes["d_head"] * sizes["heads"] == sizes["d_model"] == sizes["d_embed"]
        if not plain or sizes["dropatt"] != (sizes["dropout"] if sizes["model"] == "xlnet" else 0.0):
            return None
        names = ["model", "layers", "d_model", "heads", "d_inner", "dropout", "vocab", "segment", "mem"]
        names += ["reuse", "predict"] if sizes["model"] == "xlnet" else []
        return [word for name in names for word in (f"--{name.replace('_', '-')}", str(sizes[name]))]


def load(name, recipe, segue):
    """The shape of a recipe, as `segue` reads it."""
    sizes = sizes_of(segue.config("--config", recipe))
    cost = segue.json("pretrain", "--config", recipe, "--dry-run", codes=(0, 1))["cost"]
    return Shape(name, recipe, sizes, training_flops(cost["training_flops_per_token"]["least"], sizes))


def sizes_of(config):
    """What both programs need of a configuration, in the names of `peer_step.py`."""
    model = config["model"]
    heads, d_model = model["n_head"], model["d_model"]
    sizes = {"model": model["model_type"], "layers": model["n_layer"], "d_model": d_model, "heads": heads,
             "d_head": model["d_head"] or d_model // heads, "d_inner": model["d_inner"], "d_embed": model.get("d_embed") or d_model,
             "vocab": model["vocab_size"], "cutoffs": model.get("cutoffs", []), "div_val": model.get("div_val", 1),
             "mem": model["mem_len"], "dropout": model["dropout"], "dropatt": model["dropatt"], "untie_r": model["untie_r"],
             "init_std": model.get("init_std"), "segment": config["train"]["segment"], "clip": config["optim"]["clip"]}
    if sizes["model"] == "xlnet":
        sizes.update(reuse=model["reuse_len"], predict=config["pairs"]["num_predict"])
    return sizes


def training_flops(least, sizes):
    """Operations of a token's training where each word is as likely as any other, as the benchmark's are.

    `least` is for words of the first cluster alone. A word of another costs the products of that cluster besides: the projection to its
    width, and its logits; twice a product's size for an addition and a multiplication, three times for forward and backward.
    """
    ends = [*sizes["cutoffs"], sizes["vocab"]]
    more = 0.0
    for number, (start, end) in enumerate(zip(ends, ends[1:]), start=1):
        width = sizes["d_embed"] // sizes["div_val"]**number
        projection = 0 if sizes["div_val"] == 1 and sizes["d_embed"] == sizes["d_model"] else sizes["d_model"] * width
        more += (end - start) / sizes["vocab"] * 2 * (projection + width * (end - start))
    return least + 3 * more


def utilisation(tokens_per_s, flops_per_token, tflops):
    """The fraction of a speed in TFLOP/s that a step reaches; None where the speed is not known."""
    return tokens_per_s * flops_per_token / (tflops * 1e12) if tflops else None
