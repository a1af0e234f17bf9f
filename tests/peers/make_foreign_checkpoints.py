#!/usr/bin/env python3
"""Small checkpoints in the formats of other Transformer-XL programs, and what transformers 4.33.3 computes with the
same weights. Made once; tests/fixtures/foreign holds the result. Run by hand:

    $(scripts/peers.sh python transfoxl) tests/peers/make_foreign_checkpoints.py OUT
    PYTHON_WITH_TENSORFLOW tests/peers/make_foreign_checkpoints.py OUT --tensorflow

The second call writes the TensorFlow checkpoints from arrays that the first one left in OUT/arrays, which can go then.
The module classes below have the attributes of kimiyoung/transformer-xl's and nothing of what they compute.
"""
import json
import pathlib
import pickle
import sys
import types
from collections import Counter, OrderedDict

BASE = dict(vocab_size=40, cutoffs=[10, 22], d_model=8, d_embed=8, n_head=2, d_head=4, d_inner=12, div_val=2, n_layer=2,
            mem_len=6, clamp_len=-1, same_length=False, pre_lnorm=False, dropout=0.0, dropatt=0.0)
TF_EPSILON = 1e-12
BATCH, SEGMENT = 2, 7


# --- what is saved -------------------------------------------------------------------------------------------------

def hugging_face(seed, **overrides):
    """A model of transformers with random weights, none of them zero."""
    import torch
    from transformers import TransfoXLConfig, TransfoXLLMHeadModel
    torch.manual_seed(seed)
    model = TransfoXLLMHeadModel(TransfoXLConfig(**{**BASE, **overrides})).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    model.tie_weights()
    return model


def cases(model, start_empty):
    """Losses of two linked segments, as `segue parity` reads them."""
    import torch
    out, mems = {}, None
    if start_empty:
        mems = [torch.empty(0, BATCH, model.config.d_model)] * model.config.n_layer
    for s in range(2):
        ids = torch.randint(0, model.config.vocab_size, (BATCH, SEGMENT))
        with torch.no_grad():
            result = model(ids, mems=mems, labels=ids, output_hidden_states=True)
        mems = result.mems
        for name, value in [("input_ids", ids), ("losses", result.losses), ("loss", result.loss),
                            ("last_hidden_state", result.hidden_states[-1])]:
            out[f"segment{s}.{name}"] = value.clone().contiguous()
    return out


def kimiyoung(model):
    """The same weights as a tree of modules like those of the PyTorch program."""
    import torch
    from torch import nn
    home = types.ModuleType("mem_transformer")
    sys.modules["mem_transformer"] = home

    def kind(name):
        if not hasattr(home, name):
            setattr(home, name, type(name, (nn.Module,), {"__module__": "mem_transformer"}))
        return getattr(home, name)()

    def linear(weight, bias=None):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        layer.weight = nn.Parameter(weight.clone())
        if bias is not None:
            layer.bias = nn.Parameter(bias.clone())
        return layer

    c, w = model.config, {k: v.clone() for k, v in model.state_dict().items()}
    root = kind("MemTransformerLM")
    for name, value in dict(n_token=c.vocab_size, d_embed=c.d_embed, d_model=c.d_model, n_head=c.n_head,
                            d_head=c.d_head, n_layer=c.n_layer, tgt_len=SEGMENT, mem_len=c.mem_len, ext_len=0,
                            max_klen=SEGMENT + c.mem_len, attn_type=0, sample_softmax=-1, same_length=c.same_length,
                            clamp_len=c.clamp_len).items():
        setattr(root, name, value)
    emb = root.word_emb = kind("AdaptiveEmbedding")
    emb.n_token, emb.d_embed, emb.d_proj, emb.div_val = c.vocab_size, c.d_embed, c.d_model, c.div_val
    emb.cutoffs, emb.emb_scale = list(c.cutoffs) + [c.vocab_size], c.d_model ** 0.5
    emb.cutoff_ends = [0] + emb.cutoffs
    tables = [k for k in w if k.startswith("transformer.word_emb.emb_layers.")]
    emb.emb_layers = nn.ModuleList([nn.Embedding.from_pretrained(w[k], freeze=False) for k in tables])
    projections = sum(k.startswith("transformer.word_emb.emb_projs.") for k in w)
    emb.emb_projs = nn.ParameterList(
        [nn.Parameter(w[f"transformer.word_emb.emb_projs.{i}"]) for i in range(projections)])
    root.drop = nn.Dropout(c.dropout)
    root.layers = nn.ModuleList()
    for i in range(c.n_layer):
        p = f"transformer.layers.{i}."
        layer = kind("RelPartialLearnableDecoderLayer")
        attention = layer.dec_attn = kind("RelPartialLearnableMultiHeadAttn")
        attention.n_head, attention.d_model, attention.d_head, attention.dropout = c.n_head, c.d_model, c.d_head, 0.0
        attention.scale, attention.pre_lnorm = c.d_head ** -0.5, c.pre_lnorm
        for net in ["qkv_net", "o_net", "r_net"]:
            setattr(attention, net, linear(w[f"{p}dec_attn.{net}.weight"]))
        attention.drop, attention.dropatt = nn.Dropout(c.dropout), nn.Dropout(c.dropatt)
        feed = layer.pos_ff = kind("PositionwiseFF")
        feed.pre_lnorm = c.pre_lnorm
        core = [linear(w[f"{p}pos_ff.CoreNet.{k}.weight"], w[f"{p}pos_ff.CoreNet.{k}.bias"]) for k in (0, 3)]
        feed.CoreNet = nn.Sequential(core[0], nn.ReLU(inplace=True), nn.Dropout(0.0), core[1], nn.Dropout(0.0))
        for part, holder in [("dec_attn", attention), ("pos_ff", feed)]:
            holder.layer_norm = nn.LayerNorm(c.d_model)
            holder.layer_norm.load_state_dict({k: w[f"{p}{part}.layer_norm.{k}"] for k in ("weight", "bias")})
        root.layers.append(layer)
    crit = root.crit = kind("ProjectedAdaptiveLogSoftmax")
    crit.n_token, crit.div_val, crit.cutoffs = c.vocab_size, c.div_val, emb.cutoffs
    if c.cutoffs:
        # Tail i takes head entry -i there.
        crit.cluster_weight = nn.Parameter(w["crit.cluster_weight"].flip(0))
        crit.cluster_bias = nn.Parameter(w["crit.cluster_bias"].flip(0))
    crit.out_layers = nn.ModuleList()
    for i, table in enumerate(emb.emb_layers):
        out = nn.Linear(table.weight.shape[1], table.weight.shape[0])
        out.weight, out.bias = table.weight, nn.Parameter(w[f"crit.out_layers.{i}.bias"])
        crit.out_layers.append(out)
    crit.out_projs = nn.ParameterList()
    for i in range(len(c.cutoffs) + 1):
        key = f"crit.out_projs.{i}"
        tied = c.tie_projs[i] and key in w
        crit.out_projs.append(emb.emb_projs[0 if c.div_val == 1 else i] if tied else
                              nn.Parameter(w[key]) if key in w else None)
    root.pos_emb = kind("PositionalEmbedding")
    root.pos_emb.demb = c.d_model
    root.pos_emb.register_buffer("inv_freq", w["transformer.pos_emb.inv_freq"])
    root.r_w_bias = nn.Parameter(w["transformer.r_w_bias"])
    root.r_r_bias = nn.Parameter(w["transformer.r_r_bias"])
    return root


def nvidia(model, vocabulary):
    """The same weights as NVIDIA's program checkpoints them."""
    import argparse
    import torch
    c, w = model.config, model.state_dict()
    state = OrderedDict()
    for key, value in w.items():
        if key.startswith("crit.cluster_"):
            value = value.flip(0)
        if key.startswith("crit.out_layers.") and key.endswith(".weight"):
            continue
        if key.startswith("crit.out_layers."):
            key = key.replace("out_layers", "out_layers_biases").removesuffix(".bias")
        if key.startswith("crit.out_projs.") and c.tie_projs[int(key.split(".")[-1])]:
            continue
        state[key.removeprefix("transformer.")] = value.clone()
        if key.startswith("transformer.word_emb.emb_projs."):
            state[key.replace("transformer.word_emb.emb_projs", "crit.shared_out_projs")] = value.clone()
    for i in range(c.n_layer):  # u and v are the model's
        for bias in ["r_w_bias", "r_r_bias"]:
            state.pop(f"layers.{i}.dec_attn.{bias}", None)
    model_config = dict(n_token=c.vocab_size, n_layer=c.n_layer, n_head=c.n_head, d_model=c.d_model, d_head=c.d_head,
                        d_inner=c.d_inner, dropout=0.1, dropatt=0.0, dtype=None, tie_weight=True, d_embed=c.d_embed,
                        div_val=c.div_val, tie_projs=c.tie_projs, pre_lnorm=False, tgt_len=SEGMENT, ext_len=0,
                        mem_len=c.mem_len, cutoffs=c.cutoffs, same_length=False, attn_type=0, clamp_len=-1,
                        sample_softmax=-1)
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([weight])
    weight.sum().backward()
    optimizer.step()
    return dict(args=argparse.Namespace(lr=0.01, cuda=True), model_config=model_config, model_state=state,
                optimizer_state=optimizer.state_dict(), scheduler_state={"last_epoch": 7}, vocab=vocabulary,
                amp_state=None, epoch=1, batch=7, last_iter=48, train_step=7, best_val_loss=3.5,
                rng_states=[torch.get_rng_state()[:16]], memory=[torch.zeros(c.n_layer, c.mem_len, BATCH, c.d_model)])


def vocabulary(size):
    """An object like the programs' Vocab, of words that sort in no order."""
    home = types.ModuleType("vocabulary")
    sys.modules["vocabulary"] = home
    home.Vocab = type("Vocab", (), {"__module__": "vocabulary"})
    vocab = home.Vocab()
    words = ["<eos>", "<unk>"] + [f"w{(7 * i) % size}é" for i in range(size - 2)]
    vocab.counter, vocab.special, vocab.min_freq, vocab.max_size = Counter(words), ["<eos>"], 0, None
    vocab.lower_case, vocab.delimiter, vocab.vocab_file = False, None, None
    vocab.idx2sym = words
    vocab.sym2idx = OrderedDict((word, i) for i, word in enumerate(words))
    vocab.unk_idx = 1
    return vocab


def other_attention(attn_type, mem_len, max_klen):
    """A model like the PyTorch program's with another kind of attention, and what it computes, pair by pair.

    transformers has relative attention alone, so this is the plain form of the formulas: a loop over queries and keys,
    tables that end with distance 0 (1) or with the newest position (3), rows before the first one standing for it.
    """
    import torch
    torch.manual_seed(50 + attn_type)
    donor = hugging_face(5, untie_r=False, cutoffs=[], div_val=1, mem_len=mem_len)
    c = donor.config
    layers, heads, width = c.n_layer, c.n_head, c.d_head
    root = kimiyoung(donor)
    root.attn_type, root.max_klen = attn_type, max_klen
    del root.r_w_bias, root.r_r_bias, root.pos_emb
    new = lambda *shape: torch.nn.Parameter(0.5 * torch.randn(*shape))
    root.r_emb = new(layers, max_klen, heads, width)
    if attn_type == 1:
        root.r_w_bias, root.r_bias = new(layers, heads, width), new(layers, max_klen, heads)
    for layer in root.layers:
        attention = layer.dec_attn
        del attention.r_net
        if attn_type == 3:
            q, kv = attention.qkv_net.weight.detach().split([heads * width, 2 * heads * width])
            del attention.qkv_net
            for name, weight in [("q_net", q), ("kv_net", kv)]:
                net = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
                net.weight = torch.nn.Parameter(weight.clone())
                setattr(attention, name, net)

    def fused(attention):
        if attn_type == 1:
            return attention.qkv_net.weight
        return torch.cat([attention.q_net.weight, attention.kv_net.weight])

    def run(ids, mems):
        hidden = root.word_emb.emb_layers[0](ids) * c.d_model ** 0.5  # [time, d]
        kept = []
        for n, layer in enumerate(root.layers):
            kept.append(torch.cat([mems[n], hidden])[-mem_len:] if mem_len else mems[n])
            context = torch.cat([mems[n], hidden])
            if attn_type == 3:
                assert len(context) == max_klen
                context = context + root.r_emb[n].reshape(max_klen, -1)
                hidden = context[-len(hidden):]
            heads_of = lambda x: x.view(len(x), heads, width)
            q, k, v = [heads_of(x) for x in (context @ fused(layer.dec_attn).T).chunk(3, dim=1)]
            before = len(context) - len(hidden)
            out = torch.zeros(len(hidden), heads, width)
            for i in range(len(hidden)):
                for h in range(heads):
                    scores = []
                    for j in range(before + i + 1):
                        score = q[before + i, h] @ k[j, h]
                        if attn_type == 1:
                            row = max(max_klen - 1 - (before + i - j), 0)
                            score = (score + root.r_w_bias[n, h] @ k[j, h] + q[before + i, h] @ root.r_emb[n, row, h]
                                     + root.r_bias[n, row, h])
                        scores.append(score * width ** -0.5)
                    out[i, h] = torch.stack(scores).softmax(0) @ v[:before + i + 1, h]
            hidden = layer.dec_attn.layer_norm(hidden + layer.dec_attn.o_net(out.view(len(hidden), -1)))
            hidden = layer.pos_ff.layer_norm(hidden + layer.pos_ff.CoreNet(hidden))
        return hidden, kept

    root.eval()
    numbers, mems = {}, [[torch.zeros(0, c.d_model)] * layers for _ in range(BATCH)]
    with torch.no_grad():
        for s in range(2):
            ids = torch.randint(0, c.vocab_size, (BATCH, SEGMENT))
            results = [run(ids[b], mems[b]) for b in range(BATCH)]
            mems = [result[1] for result in results]
            hidden = torch.stack([result[0] for result in results])
            logits = root.crit.out_layers[0](hidden[:, :-1])
            losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
            for name, value in [("input_ids", ids), ("losses", losses), ("loss", losses.mean()),
                                ("last_hidden_state", hidden)]:
                numbers[f"segment{s}.{name}"] = value.clone().contiguous()
    return root, numbers


# --- TensorFlow names ----------------------------------------------------------------------------------------------

def tensorflow_names(model, proj_same_dim=True):
    """The weights of a transformers model under the names and in the shapes of the TensorFlow program."""
    import numpy
    c, w = model.config, {k: v.numpy() for k, v in model.state_dict().items()}
    out = {}
    put = lambda name, value: out.__setitem__("transformer/" + name, numpy.ascontiguousarray(value))
    for bias in ["r_w_bias", "r_r_bias"]:
        layers = [w[f"transformer.layers.{i}.dec_attn.{bias}"] for i in range(c.n_layer)]
        put(bias, numpy.stack(layers) if c.untie_r else w[f"transformer.{bias}"])
    scopes = [""] if c.div_val == 1 else [f"cutoff_{i}/" for i in range(len(c.cutoffs) + 1)]
    for i, scope in enumerate(scopes):
        put(f"adaptive_embed/{scope}lookup_table", w[f"transformer.word_emb.emb_layers.{i}.weight"])
        key = f"transformer.word_emb.emb_projs.{i}"
        if key in w and (proj_same_dim or w[key].shape[0] != w[key].shape[1]):
            put(f"adaptive_embed/{scope}proj_W", w[key].T)
    if not c.cutoffs:
        put("adaptive_softmax/bias", w["crit.out_layers.0.bias"])
    else:
        put("adaptive_softmax/cutoff_0/cluster_W", w["crit.cluster_weight"])
        put("adaptive_softmax/cutoff_0/cluster_b", w["crit.cluster_bias"])
        ends = [0] + list(c.cutoffs) + [c.vocab_size]
        for i in range(len(ends) - 1):
            bias = w["crit.out_layers.0.bias"][ends[i]:ends[i + 1]] if c.div_val == 1 else w[f"crit.out_layers.{i}.bias"]
            put(f"adaptive_softmax/cutoff_{i}/b", bias)
            key = f"crit.out_projs.{i}"
            if key in w and not c.tie_projs[i] and (proj_same_dim or w[key].shape[0] != w[key].shape[1]):
                put(f"adaptive_softmax/cutoff_{i}/proj", w[key].T)
    for i in range(c.n_layer):
        p, t = f"transformer.layers.{i}.", f"layer_{i}/"
        for net in ["qkv", "r", "o"]:
            put(f"{t}rel_attn/{net}/kernel", w[f"{p}dec_attn.{net}_net.weight"].T)
        for theirs, ours in [("layer_1", 0), ("layer_2", 3)]:
            put(f"{t}ff/{theirs}/kernel", w[f"{p}pos_ff.CoreNet.{ours}.weight"].T)
            put(f"{t}ff/{theirs}/bias", w[f"{p}pos_ff.CoreNet.{ours}.bias"])
        for theirs, ours in [("rel_attn", "dec_attn"), ("ff", "pos_ff")]:
            put(f"{t}{theirs}/LayerNorm/gamma", w[f"{p}{ours}.layer_norm.weight"])
            put(f"{t}{theirs}/LayerNorm/beta", w[f"{p}{ours}.layer_norm.bias"])
    return out


TENSORFLOW = {
    "wt103": dict(untie_r=True),
    "lm1b": dict(untie_r=True, proj_share_all_but_first=False),
    "enwik8": dict(untie_r=False, cutoffs=[], div_val=1),
    "one_table": dict(untie_r=True, div_val=1, d_embed=6),
}


def write_arrays(out):
    import numpy
    import torch
    from safetensors.torch import save_file
    for seed, (name, overrides) in enumerate(TENSORFLOW.items()):
        model = hugging_face(100 + seed, layer_norm_epsilon=TF_EPSILON, **overrides)
        if name == "lm1b":
            with torch.no_grad():
                for holder in [model.transformer.word_emb.emb_projs, model.crit.out_projs]:
                    holder[0].copy_(torch.eye(8))
        folder = out / "tensorflow" / name
        folder.mkdir(parents=True, exist_ok=True)
        save_file(cases(model, start_empty=False), folder / "cases.safetensors")
        arrays = tensorflow_names(model, proj_same_dim=name != "lm1b")
        (out / "arrays").mkdir(exist_ok=True)
        numpy.savez(out / "arrays" / name, **{key.replace("/", "|"): value for key, value in arrays.items()})


def write_tensorflow(out):
    import numpy
    import tensorflow as tf
    tf.compat.v1.disable_eager_execution()
    for name in TENSORFLOW:
        arrays = {key.replace("|", "/"): value for key, value in numpy.load(out / "arrays" / f"{name}.npz").items()}
        if name == "wt103":
            slots = {f"{key}/{slot}": numpy.zeros_like(arrays[key])
                     for key in ["transformer/layer_0/ff/layer_1/bias"] for slot in ["Adam", "Adam_1"]}
            arrays.update(slots, beta1_power=numpy.float32(0.9), beta2_power=numpy.float32(0.99),
                          global_step=numpy.int64(7))
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            for key, value in arrays.items():
                tf.compat.v1.get_variable(key, initializer=value, use_resource=False)
            session.run(tf.compat.v1.global_variables_initializer())
            saver = tf.compat.v1.train.Saver()
            saver.save(session, str(out / "tensorflow" / name / "model.ckpt"), global_step=7, write_meta_graph=False)
        # The folder it was written in means nothing elsewhere.
        checkpoint = '/gone/model.ckpt-7'
        (out / "tensorflow" / name / "checkpoint").write_text(f'model_checkpoint_path: "{checkpoint}"\n')


# --- all of it -----------------------------------------------------------------------------------------------------

def write_torch(out):
    import torch
    from safetensors.torch import save_file

    def no_source(*_):
        raise OSError("the layout of 2019 keeps the sources of modules; the fixtures do without")
    torch.serialization.get_source_lines_and_file = no_source
    vocab = vocabulary(BASE["vocab_size"])

    model = hugging_face(1, untie_r=True)
    folder = out / "hugging_face"
    folder.mkdir(parents=True, exist_ok=True)
    config = {k: v for k, v in model.config.to_dict().items() if k in BASE or k in ("untie_r", "model_type")}
    config["n_token"] = config.pop("vocab_size")
    config.update(tgt_len=SEGMENT, ext_len=0, tie_weight=True, proj_share_all_but_first=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    torch.save(vocab.__dict__, folder / "vocab.bin", _use_new_zipfile_serialization=False)
    save_file(cases(model, start_empty=False), folder / "cases.safetensors")

    folder = out / "kimiyoung"
    folder.mkdir(parents=True, exist_ok=True)
    model = hugging_face(2, untie_r=False)
    torch.save(kimiyoung(model), folder / "model.pt", _use_new_zipfile_serialization=False)
    save_file(cases(model, start_empty=True), folder / "cases.safetensors")
    home = types.ModuleType("data_utils")
    sys.modules["data_utils"] = home
    home.Corpus = type("Corpus", (), {"__module__": "data_utils"})
    corpus = home.Corpus()
    corpus.dataset, corpus.vocab, corpus.train = "wt103", vocab, torch.arange(12)
    torch.save(corpus, folder / "cache.pt", _use_new_zipfile_serialization=False)
    for name, overrides in [("one_table", dict(div_val=1, d_embed=6, proj_share_all_but_first=False)),
                            ("characters", dict(cutoffs=[], div_val=1))]:
        model = hugging_face(3, untie_r=False, **overrides)
        torch.save(kimiyoung(model), folder / f"{name}.pt")
        save_file(cases(model, start_empty=True), folder / f"{name}.cases.safetensors")

    for name, attn_type, mem_len, max_klen in [("shaw", 1, 6, 9), ("learned", 3, 0, SEGMENT)]:
        model, numbers = other_attention(attn_type, mem_len, max_klen)
        torch.save(model, folder / f"{name}.pt")
        save_file(numbers, folder / f"{name}.cases.safetensors")

    folder = out / "nvidia"
    folder.mkdir(parents=True, exist_ok=True)
    model = hugging_face(4, untie_r=False)
    torch.save(nvidia(model, vocab), folder / "checkpoint_last.pt")
    save_file(cases(model, start_empty=True), folder / "cases.safetensors")

    folder = out / "vocabularies"
    folder.mkdir(parents=True, exist_ok=True)
    for protocol in (0, 2, 4):
        with open(folder / f"protocol{protocol}.pkl", "wb") as file:
            pickle.dump(vocab.__dict__ if protocol else vocab, file, protocol=protocol)
    bytes_like = vocabulary(40)
    bytes_like.idx2sym = [str(b) for b in [32, 101, 116, 10, 255]]
    bytes_like.sym2idx = {symbol: i for i, symbol in enumerate(bytes_like.idx2sym)}
    with open(folder / "enwik8.pkl", "wb") as file:
        pickle.dump(bytes_like, file, protocol=2)


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    if "--tensorflow" in sys.argv:
        write_tensorflow(target)
    else:
        target.mkdir(parents=True, exist_ok=True)
        write_torch(target)
        write_arrays(target)
