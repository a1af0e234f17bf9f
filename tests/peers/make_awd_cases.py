#!/usr/bin/env python3
"""Small models of the published code of AWD-LSTM and of its mixture of softmaxes, saved as those programs save them, and what their own
classes compute: losses, log-probabilities, states and gradients of linked segments, as `segue parity` reads them.

    $(scripts/peers.sh python base) tests/peers/make_awd_cases.py CODE OUT

CODE is a checkout of salesforce/awd-lstm-lm (at 1d466ec) or of zihangdai/mos (at 9c0c608), whose modules are imported. The files of
tests/fixtures/foreign/recurrent that are named `program` and `program_split` were made so with torch 2.11; CODE tells which of them are
written. make_recurrent_checkpoints.py writes models of these layouts without the programs, and computes with code of its own. Exits with 2
where the packages are not installed.
"""
import contextlib
import io
import pathlib
import sys
from types import SimpleNamespace

try:
    import torch
    from safetensors.torch import save_file
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(2)

from make_recurrent_checkpoints import BASE, gradients, memories

LANES, SEGMENT, SEGMENTS = 2, 7, 2
SIZES = dict(words=23, emsize=6, nhid=10, nlayers=3, wdrop=0.5)
# One border: the program adds one mask a border, which were bytes when it was written. They are booleans now, whose sum is 1 at most, so
# that words behind a second border would be looked for in the first cluster.
AWD = {"program": dict(seed=21), "program_split": dict(seed=22, splits=[9], emsize=4, nhid=5, nlayers=2)}
MOS = {"program": dict(seed=23, layout="mos", emsize=4, nhid=5, nhidlast=6, nlayers=2)}
# What single and double precision may differ by, over the largest value of a tensor: a tenth of what `segue parity` allows.
FORWARD, GRADIENT = 1e-6, 1e-5


# --- the programs' models, losses and files ------------------------------------------------------------------------

def build(c):
    """Model and criterion (None in mos, which predicts inside the model), made as main.py makes them, and randomly moved."""
    from model import RNNModel
    torch.manual_seed(c["seed"])
    rates = dict(dropout=c["dropout"], dropouth=c["dropouth"], dropouti=c["dropouti"], dropoute=c["dropoute"], wdrop=c["wdrop"])
    with contextlib.redirect_stdout(io.StringIO()):  # they print their layers
        if c["layout"] == "mos":
            model = RNNModel("LSTM", c["words"], c["emsize"], c["nhid"], c["nhidlast"], c["nlayers"], **rates, tie_weights=True,
                             ldropout=c["dropoutl"], n_experts=c["experts"])
            criterion = None
        else:
            from splitcross import SplitCrossEntropyLoss
            model = RNNModel("LSTM", c["words"], c["emsize"], c["nhid"], c["nlayers"], **rates, tie_weights=True)
            criterion = SplitCrossEntropyLoss(c["emsize"], splits=c["splits"], verbose=False)
    with torch.no_grad():
        for parameter in trained(model, criterion):  # fresh biases and tails are zero, and would hide mistakes
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval(), criterion


def trained(model, criterion):
    return list(model.parameters()) + (list(criterion.parameters()) if criterion else [])


def mean_loss(model, criterion, output, targets):
    """What main.py trains for."""
    if criterion is None:
        return torch.nn.functional.nll_loss(output, targets)
    return criterion(model.decoder.weight, model.decoder.bias, output, targets)


def log_probabilities(c, model, criterion, output):
    """Of all words at every position, [positions, words]. The criterion tells the mean of some targets: it is asked for one at a time."""
    if criterion is None:
        return output
    one = lambda row, word: -mean_loss(model, criterion, row.unsqueeze(0), torch.tensor([word]))
    return torch.stack([torch.stack([one(row, word) for word in range(c["words"])]) for row in output])


def save(model, criterion, path):
    """As `model_save` of awd-lstm-lm and `save_checkpoint` of mos do."""
    optimizer = torch.optim.SGD(trained(model, criterion), lr=30.0, weight_decay=1.2e-6)
    torch.save([model, criterion, optimizer] if criterion else model, path)


# --- what they compute ---------------------------------------------------------------------------------------------

def whole(layer):
    """A layer's parameters by the names of torch.nn.LSTM: where weights are dropped the trained matrix has the ending _raw."""
    inner = layer.module
    return SimpleNamespace(weight_ih_l0=inner.weight_ih_l0, weight_hh_l0=inner.weight_hh_l0_raw, bias_ih_l0=inner.bias_ih_l0,
                           bias_hh_l0=inner.bias_hh_l0)


def by_segue_names(c, model, criterion):
    """The gradients, each by the parameter of the model that the file becomes."""
    for name, parameter in model.named_parameters():
        # WeightDrop hands the matrix on by `setattr` in each pass. PyTorch 2.11 brings its list of a layer's weights (`_flat_weights`) up to
        # date then; a version that did not would read the matrix of the start, and leave this one without a gradient.
        assert parameter.grad is not None and parameter.grad.any(), name
    parts = dict(encoder=model.encoder, decoder=model.decoder, rnns=[whole(layer) for layer in model.rnns])
    if criterion is None:
        parts.update(latent=model.latent, prior=model.prior)
    return gradients(c, SimpleNamespace(**parts), criterion)


def cases(c, model, criterion):
    """Linked segments. Without dropout, as in evaluation: masks of two programs are never the same."""
    from utils import repackage_hidden
    generator = torch.Generator().manual_seed(c["seed"])
    out, states = {}, model.init_hidden(LANES)
    for s in range(SEGMENTS):
        # `embedded_dropout` passes a padding index of -1 for none, which PyTorch reads as the last word: its row gets no gradient as an
        # input, which no equation of the paper asks for and Segue does not imitate. So it comes last, where it is a target alone.
        ids = torch.randint(0, c["words"] - 1, (LANES, SEGMENT), generator=generator)
        ids[s % LANES, -1] = c["words"] - 1
        output, after = model(ids.T, states)  # time comes first
        by_lane = lambda rows: rows.reshape(SEGMENT, LANES, -1).transpose(0, 1)
        rows = output.reshape(SEGMENT * LANES, -1)
        for parameter in trained(model, criterion):
            parameter.grad = None
        # The last word of a segment has no target.
        loss = mean_loss(model, criterion, rows[:-LANES], ids[:, 1:].T.reshape(-1))
        loss.backward()
        with torch.no_grad():
            log_probs = by_lane(log_probabilities(c, model, criterion, rows))
        losses = -log_probs[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)
        assert abs(losses.mean() - loss) < FORWARD * loss
        found = {"losses": losses, "loss": loss, "log_probs": log_probs}
        found.update({f"memory.{i}": part for i, part in memories(c, after).items()})
        found.update({f"grad.{name}": grad for name, grad in by_segue_names(c, model, criterion).items()})
        out[f"segment{s}.input_ids"] = ids
        out.update({f"segment{s}.{name}": value.detach().clone().contiguous() for name, value in found.items()})
        states = repackage_hidden(after)
    return out


def difference(single, double):
    """Largest over the largest value of the tensor."""
    return ((single.double() - double).abs().max() / double.abs().max()).item()


def write(c, path):
    c = {**BASE, **SIZES, **c}
    model, criterion = build(c)
    found = cases(c, model, criterion)
    # Both programs save after they have evaluated: what a pass leaves in the layers goes into the file.
    path.parent.mkdir(parents=True, exist_ok=True)
    save(model, criterion, path.with_suffix(".pt"))
    save_file(found, path.with_suffix(".cases.safetensors"))
    exact = cases(c, *[part and part.double() for part in build(c)])
    numbers = [name for name, value in found.items() if value.is_floating_point()]
    for limit, is_gradient in ((FORWARD, False), (GRADIENT, True)):
        error, worst = max((difference(found[name], exact[name]), name) for name in numbers if (".grad." in name) == is_gradient)
        print(f"{path}: single and double precision differ by {error:.1e} at most, in {worst}")
        assert error < limit


def main():
    torch.set_num_threads(1)
    code, target = map(pathlib.Path, sys.argv[1:])
    sys.path.insert(0, str(code))
    is_awd = (code / "splitcross.py").exists()
    for name, configuration in (AWD if is_awd else MOS).items():
        write(configuration, target / ("awd_lstm_lm" if is_awd else "mos") / name)


if __name__ == "__main__":
    main()
