#!/usr/bin/env python3
"""Small checkpoints in the layouts of three PyTorch programs with recurrent language models, and what PyTorch computes
with the same weights: losses, log-probabilities, states and gradients of linked segments, as `segue parity` reads them.

    $(scripts/peers.sh python base) tests/peers/make_recurrent_checkpoints.py OUT [CONFIGURATION ..]
    $(scripts/peers.sh python base) tests/peers/make_recurrent_checkpoints.py --same OUT/N/model.pt BACK/model.pt CONFIGURATION

Without configurations it makes the files of tests/fixtures/foreign/recurrent. A configuration is JSON with any of the keys of
BASE; OUT/N holds the N-th, as model.pt and cases.safetensors. The second call fails unless what came back is what was there. The classes below have the attributes of the programs' and nothing of
what they compute; what is computed is written here, over PyTorch's own recurrent layers where it has them.
"""
import json
import pathlib
import sys
import types
from collections import Counter, OrderedDict

import torch
from safetensors.torch import save_file
from torch import nn

LANES, SEGMENT, SEGMENTS = 2, 7, 3
# layout: word (word_language_model), awd (awd-lstm-lm) or mos; cell: LSTM, GRU, RNN_TANH, RNN_RELU or QRNN.
# form: module (pickled whole), list (with criterion and optimizer), state, states (of model and criterion); legacy: before PyTorch 1.6.
BASE = dict(layout="awd", cell="LSTM", form="module", legacy=False, seed=1, words=23, emsize=6, nhid=9, nhidlast=8, nlayers=3,
            tied=True, experts=3, splits=[], wdrop=0.5, dropout=0.4, dropouth=0.25, dropouti=0.35, dropoute=0.1, dropoutl=0.3,
            parallel=False, duplicates=False)
FAR = 100_000_000  # what the program's last border is


def of(module, name, **members):
    """An empty module of class `name`, which pickles name as one of the Python module `module`."""
    home = sys.modules.setdefault(module, types.ModuleType(module))
    package = module.split(".")[0]
    sys.modules.setdefault(package, types.ModuleType(package)).__path__ = []
    if not hasattr(home, name):
        setattr(home, name, type(name, (nn.Module,), {"__module__": module, **members}))
    return getattr(home, name)()


# --- the models, as far as they are saved --------------------------------------------------------------------------

def recurrent(cell, inputs, width, layers=1):
    if cell == "QRNN":
        raise ValueError("layers of a QRNN are single")
    if cell.startswith("RNN"):
        return nn.RNN(inputs, width, layers, nonlinearity=cell.removeprefix("RNN_").lower())
    return getattr(nn, cell)(inputs, width, layers)


def quasi(inputs, width, window):
    layer = of("torchqrnn.qrnn", "QRNNLayer")
    layer.window, layer.input_size, layer.hidden_size, layer.zoneout = window, inputs, width, 0
    layer.save_prev_x, layer.prevX, layer.output_gate, layer.use_cuda = True, None, True, True
    layer.linear = nn.Linear(window * inputs, 3 * width)
    return layer


def widths(c):
    last = c["nhidlast"] if c["layout"] == "mos" else c["emsize"] if c["tied"] or c["cell"] == "GRU" else c["nhid"]
    return [c["nhid"]] * (c["nlayers"] - 1) + [last]


def build(c):
    """The model with random weights, none of them zero."""
    model = of("model", "RNNModel")
    model.encoder = nn.Embedding(c["words"], c["emsize"])
    if c["layout"] == "word":
        model.drop = nn.Dropout(c["dropout"])
        model.rnn = recurrent(c["cell"], c["emsize"], c["nhid"], c["nlayers"])
        model.decoder = nn.Linear(c["nhid"], c["words"])
    else:
        model.lockdrop = of("locked_dropout", "LockedDropout")
        sizes = [c["emsize"]] + widths(c)
        layers = zip(sizes, sizes[1:])
        if c["cell"] == "QRNN":
            model.rnns = nn.ModuleList([quasi(m, n, 2 if l == 0 else 1) for l, (m, n) in enumerate(layers)])
        else:
            model.rnns = nn.ModuleList([recurrent(c["cell"], m, n) for m, n in layers])
        model.decoder = nn.Linear(sizes[-1] if c["layout"] == "awd" else c["emsize"], c["words"])
        if c["layout"] == "mos":
            model.prior = nn.Linear(sizes[-1], c["experts"], bias=False)
            model.latent = nn.Sequential(nn.Linear(sizes[-1], c["experts"] * c["emsize"]), nn.Tanh())
    if c["tied"]:
        model.decoder.weight = model.encoder.weight
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
    for name in ["nhid", "nlayers"] + ([] if c["layout"] == "word" else ["dropout", "dropouti", "dropouth", "dropoute"]):
        setattr(model, name, c[name])
    model.rnn_type, model.ntoken = c["cell"], c["words"]
    if c["layout"] == "awd":
        model.ninp, model.tie_weights = c["emsize"], c["tied"]
        model.idrop, model.hdrop, model.drop = nn.Dropout(c["dropouti"]), nn.Dropout(c["dropouth"]), nn.Dropout(c["dropout"])
    if c["layout"] == "mos":
        model.ninp, model.nhidlast, model.n_experts = c["emsize"], c["nhidlast"], c["experts"]
        model.ldropout = model.dropoutl = c["dropoutl"]
        model.use_dropout = True
    criterion = of("splitcross", "SplitCrossEntropyLoss")
    criterion.hidden_size, criterion.splits, criterion.verbose = c["emsize"], [0] + c["splits"] + [FAR], False
    criterion.nsplits, criterion.stats = len(c["splits"]) + 1, {}
    if c["splits"]:
        criterion.tail_vectors = nn.Parameter(0.4 * torch.randn(len(c["splits"]), model.decoder.weight.shape[1]))
        criterion.tail_bias = nn.Parameter(0.4 * torch.randn(len(c["splits"])))
    return model.eval(), criterion.eval()


def unflattened(*_):
    """What the program puts in place of a layer's own method; pickles name it as an attribute of the holder."""


def drop_weights(c, model):
    """Gives layers the form that dropped weights have: the trained matrix under a name of its own."""
    def wrapped(module, name):
        holder = of("weight_drop", "WeightDrop", unflattened=unflattened)
        holder.module, holder.weights, holder.dropout, holder.variational = module, [name], c["wdrop"], False
        weight = module._parameters.pop(name)
        module.register_parameter(f"{name}_raw", nn.Parameter(weight.data))
        if c["duplicates"]:  # what the last forward pass has left
            module.register_parameter(name, nn.Parameter(nn.functional.dropout(weight.data, c["wdrop"])))
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters = holder.unflattened
        return holder

    if c["layout"] == "word" or not c["wdrop"] and c["cell"] != "QRNN":
        return
    for l, layer in enumerate(model.rnns):
        if c["cell"] == "QRNN":
            layer.linear = wrapped(layer.linear, "weight")
        else:
            model.rnns[l] = wrapped(layer, "weight_hh_l0")


# --- what they compute ---------------------------------------------------------------------------------------------

def run_quasi(layer, x, state):
    """Layer with gates z, f, o of this and, with a window of 2, the input before: c = f z + (1 - f) c', h = o c."""
    before, carried = state
    if layer.window == 2:
        before = torch.cat([before, x[:-1]])
        z, f, o = layer.linear(torch.cat([x, before], 2)).chunk(3, 2)
    else:
        z, f, o = layer.linear(x).chunk(3, 2)
    out = []
    for t in range(len(x)):
        carried = f[t].sigmoid() * z[t].tanh() + (1 - f[t].sigmoid()) * carried
        out.append(o[t].sigmoid() * carried)
    return torch.stack(out), (x[-1:], carried)


def start(c):
    """States before the first segment: of each layer h and c (LSTM), h (GRU, RNN), or the last input and c (QRNN)."""
    zeros = lambda *size: torch.zeros(*size, dtype=torch.float64)
    sizes = [c["nhid"]] * c["nlayers"] if c["layout"] == "word" else widths(c)
    if c["cell"] == "QRNN":
        return [(zeros(1, LANES, m), zeros(LANES, n)) for m, n in zip([c["emsize"]] + sizes, sizes)]
    states = [(zeros(1, LANES, n), zeros(1, LANES, n)) for n in sizes]
    return states if c["cell"] == "LSTM" else [state[0] for state in states]


def forward(c, model, criterion, ids, states):
    """Log-probabilities of all words, [lanes, time, words], and the states after the last position."""
    x = model.encoder(ids.T)
    after = []
    if c["layout"] == "word":
        joined = states
        if c["cell"] == "LSTM":
            joined = tuple(torch.cat([state[part] for state in states]) for part in range(2))
            x, (h, cells) = model.rnn(x, joined)
            after = [(h[l:l + 1], cells[l:l + 1]) for l in range(len(states))]
        else:
            x, h = model.rnn(x, torch.cat(joined))
            after = [h[l:l + 1] for l in range(len(states))]
    else:
        for layer, state in zip(model.rnns, states):
            x, state = run_quasi(layer, x, state) if c["cell"] == "QRNN" else layer(x, state)
            after.append(state)
    x = x.transpose(0, 1)
    weight, bias = model.decoder.weight, model.decoder.bias
    if c["layout"] == "mos":
        vectors = model.latent(x).unflatten(-1, (c["experts"], c["emsize"]))
        each = (vectors @ weight.T + bias).log_softmax(-1)
        return torch.logsumexp(model.prior(x).log_softmax(-1).unsqueeze(-1) + each, -2), after
    scores = x @ weight.T + bias
    if not c["splits"]:
        return scores.log_softmax(-1), after
    ends = [0] + c["splits"] + [c["words"]]
    head = torch.cat([scores[..., :ends[1]], x @ criterion.tail_vectors.T + criterion.tail_bias], -1).log_softmax(-1)
    parts = [head[..., :ends[1]]]
    for i in range(1, len(ends) - 1):  # tail i takes the i-th entry from the end
        parts.append(head[..., -i:][..., :1] + scores[..., ends[i]:ends[i + 1]].log_softmax(-1))
    return torch.cat(parts, -1), after


# --- in the names and shapes of a Segue folder ---------------------------------------------------------------------

def gradients(c, model, criterion):
    """Gradients by the parameters of the model that a checkpoint becomes."""
    out = {"embedding.weight": model.encoder.weight.grad, "output.bias": model.decoder.bias.grad}
    if not c["tied"]:
        out["output.weight"] = model.decoder.weight.grad
    if c["splits"]:
        out["clusters.weight"], out["clusters.bias"] = criterion.tail_vectors.grad.flip(0), criterion.tail_bias.grad.flip(0)
    if c["layout"] == "mos":
        out["mixture.weight"], out["mixture.bias"] = model.latent[0].weight.grad, model.latent[0].bias.grad
        out["mixture.prior"] = model.prior.weight.grad
    for l in range(c["nlayers"]):
        put = lambda name, value: out.__setitem__(f"layers.{l}.{name}", value)
        if c["cell"] == "QRNN":
            quasi_gradients(model.rnns[l], put)
            continue
        holder, k = (model.rnn, l) if c["layout"] == "word" else (model.rnns[l], 0)
        of_input, of_state = [getattr(holder, f"weight_{part}_l{k}").grad for part in ("ih", "hh")]
        biases = [getattr(holder, f"bias_{part}_l{k}").grad for part in ("ih", "hh")]
        if c["cell"] != "LSTM":
            put("weight_x", of_input), put("weight_h", of_state), put("bias", biases[0]), put("bias_h", biases[1])
            continue
        for name, matrix in [("weight_x", of_input), ("weight_h", of_state)]:
            i, f, j, o = matrix.chunk(4)
            put(name, torch.cat([f, j, o, i]))
        for (rest, forget), bias in zip([("bias", "bias_f"), ("bias_h", "bias_fh")], biases):
            i, f, j, o = bias.chunk(4)
            put(forget, f), put(rest, torch.cat([j, o, i]))
    return out


def quasi_gradients(layer, put):
    """Gates f, z, o instead of z, f, o, f with the other sign; of a window, the input read last comes last."""
    def turned(matrix):
        return torch.cat(matrix.chunk(2, 1)[::-1], 1) if layer.window == 2 else matrix
    z, f, o = layer.linear.weight.grad.chunk(3)
    put("weight_x", turned(torch.cat([-f, z, o])))
    z, f, o = layer.linear.bias.grad.chunk(3)
    put("bias_f", -f), put("bias", torch.cat([z, o]))


def memories(c, states):
    """What a Segue model carries by its number: h and c of each layer, [lanes, 1, width]; of a QRNN the last input of a window, and c."""
    out = {}
    for l, state in enumerate(states):
        if c["cell"] == "QRNN":
            pair = (state[0][0] if l == 0 else None, state[1])
        else:
            pair = [part[0] for part in (state if c["cell"] == "LSTM" else (state, state))]
        out.update({2 * l + i: part.unsqueeze(1) for i, part in enumerate(pair) if part is not None})
    return out


def cases(c, model, criterion):
    """Linked segments in double precision."""
    model, criterion = model.double(), criterion.double()
    generator = torch.Generator().manual_seed(c["seed"])
    out, states = {}, start(c)
    for s in range(SEGMENTS):
        ids = torch.randint(0, c["words"], (LANES, SEGMENT), generator=generator)
        log_probs, after = forward(c, model, criterion, ids, states)
        losses = -log_probs[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)
        model.zero_grad(), criterion.zero_grad()
        losses.mean().backward()
        found = {"input_ids": ids, "losses": losses, "loss": losses.mean(), "log_probs": log_probs}
        found.update({f"memory.{i}": part for i, part in memories(c, after).items()})
        found.update({f"grad.{name}": grad for name, grad in gradients(c, model, criterion).items()})
        for name, value in found.items():
            value = value.detach().clone().contiguous()
            out[f"segment{s}.{name}"] = value if name == "input_ids" else value.float()
        cut = lambda state: tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()
        states = [cut(state) for state in after]
    model.float(), criterion.float()
    return out


# --- files -----------------------------------------------------------------------------------------------------------

def write(c, checkpoint, numbers):
    c = {**BASE, **c}
    torch.manual_seed(c["seed"])
    model, criterion = build(c)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    if c["cell"] != "RNN_RELU":
        save_file(cases(c, model, criterion), numbers)
    model.zero_grad(), criterion.zero_grad()
    drop_weights(c, model)
    parameters = list(model.parameters()) + list(criterion.parameters())
    saved = nn.DataParallel(model) if c["parallel"] else model
    form = c["form"]
    if form == "list":
        optimizer = torch.optim.ASGD(parameters, lr=0.0, t0=0, lambd=0.0)
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
        saved = [saved, criterion, optimizer]
    elif form == "state":
        saved = saved.state_dict()
    elif form == "states":
        saved = {"model": saved.state_dict(), "criterion": criterion.state_dict()}
    torch.save(saved, checkpoint, _use_new_zipfile_serialization=not c["legacy"])


def write_corpus(path, size):
    """A cached corpus with its dictionary, as the programs keep it."""
    home = sys.modules.setdefault("data", types.ModuleType("data"))
    home.Corpus, home.Dictionary = [type(name, (), {"__module__": "data"}) for name in ("Corpus", "Dictionary")]
    corpus, words = home.Corpus(), home.Dictionary()
    words.idx2word = ["aer", "<unk>", "<eos>"] + [f"w{(7 * i) % size}é" for i in range(size - 3)]
    words.word2idx = {word: i for i, word in enumerate(words.idx2word)}
    words.counter, words.total = Counter(range(size)), size
    corpus.dictionary, corpus.train = words, torch.arange(12)
    torch.save(corpus, path, _use_new_zipfile_serialization=False)


def same(c, before, after):
    """Whether a model that was written by this program comes back with the same values and ties."""
    c = {**BASE, **c}
    drop_weights(c, build(c)[0])  # the classes that a pickle names
    old, new = torch.load(before, weights_only=False), torch.load(after, weights_only=True)
    old = old[0] if isinstance(old, list) else old
    old = old.state_dict() if isinstance(old, nn.Module) else old.get("model", old)
    new = new.get("model", new)
    old = {name.removeprefix("module."): value for name, value in old.items()}
    old = {name: value for name, value in old.items() if f"{name}_raw" not in old}
    assert sorted(old) == sorted(new), (sorted(old), sorted(new))
    for name, value in old.items():
        assert torch.equal(value, new[name]), name
    assert (new["encoder.weight"].data_ptr() == new["decoder.weight"].data_ptr()) == c["tied"]


FIXTURES = {
    "word_language_model/lstm": dict(layout="word", nlayers=2, tied=False),
    "word_language_model/tied": dict(layout="word", nlayers=2, emsize=7, nhid=7, form="state", legacy=True, seed=2),
    "word_language_model/gru": dict(layout="word", cell="GRU", nlayers=2, tied=False, legacy=True, seed=3),
    "word_language_model/tanh": dict(layout="word", cell="RNN_TANH", nlayers=1, tied=False, seed=4),
    "word_language_model/relu": dict(layout="word", cell="RNN_RELU", nlayers=1, tied=False, seed=4),
    "awd_lstm_lm/lstm": dict(form="list", legacy=True, seed=5),
    "awd_lstm_lm/untied": dict(form="state", tied=False, wdrop=0, nlayers=2, seed=6),
    "awd_lstm_lm/split": dict(form="list", splits=[5, 11, 16], nlayers=2, seed=7),
    "awd_lstm_lm/gru": dict(form="module", cell="GRU", nlayers=2, seed=8),
    "awd_lstm_lm/qrnn": dict(form="list", cell="QRNN", legacy=True, splits=[6, 14], nlayers=3, wdrop=0.1, seed=9),
    "mos/mixture": dict(layout="mos", legacy=True, nlayers=2, seed=10),
    "mos/state": dict(layout="mos", form="state", duplicates=True, nlayers=2, experts=2, seed=11),
}


def main():
    def no_source(*_):
        raise OSError("the older layout keeps the sources of modules; the fixtures do without")
    torch.serialization.get_source_lines_and_file = no_source
    if sys.argv[1] == "--same":
        before, after, configuration = sys.argv[2:]
        return same(json.loads(configuration), before, after)
    target = pathlib.Path(sys.argv[1])
    if len(sys.argv) > 2:
        for number, text in enumerate(sys.argv[2:]):
            write(json.loads(text), target / str(number) / "model.pt", target / str(number) / "cases.safetensors")
        return
    for name, configuration in FIXTURES.items():
        write(configuration, target / f"{name}.pt", target / f"{name}.cases.safetensors")
    write_corpus(target / "corpus.pt", BASE["words"])


if __name__ == "__main__":
    main()
