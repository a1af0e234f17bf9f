#!/usr/bin/env python3
"""Reference numbers of Hugging Face's XLNet (transformers 5) for any configuration.

  make_xlnet_cases.py FOLDER '{"attn_type": "uni", "batch": 4, ...}' ..

writes for each configuration FOLDER/NUMBER/{config.json, model.safetensors, cases.safetensors}, numbered from 0: a
tiny model with random weights, its encoder, a permutation with memory, and the heads, with gradients, as
`segue parity` reads them. `batch`, `starts` and `ends` are keys of this program, all others the package's. Exits
with 2 where the packages are not installed.
"""
import json
import pathlib
import sys

try:
    import torch
    from safetensors.torch import save_file
    from transformers import (XLNetConfig, XLNetForMultipleChoice, XLNetForQuestionAnswering,
                              XLNetForSequenceClassification, XLNetLMHeadModel, XLNetModel)
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(2)

DEFAULTS = dict(vocab_size=53, d_model=32, n_head=4, n_layer=3, d_inner=48, ff_activation="gelu", mem_len=7,
                reuse_len=5, dropout=0.0, summary_last_dropout=0.0, initializer_range=0.2)
LENGTH, OPTIONS, TARGETS, PADS = 11, 3, 4, 2
HEADS = ("sequence_summary.", "logits_proj.", "start_logits.", "end_logits.", "answer_class.")


class Cases:
    def __init__(self, config, batch):
        self.config, self.batch, self.tensors = config, batch, {}

    def put(self, name, tensor):
        self.tensors[name] = tensor.detach().clone().contiguous()

    def model(self, kind, encoder, **more):
        """A model of `kind` with fresh heads on the common encoder."""
        config = XLNetConfig(**{**self.config.to_dict(), **more})
        model = kind(config).eval()
        with torch.no_grad():
            for p in model.parameters():  # fresh biases are zero, and would hide mistakes
                p.add_(0.2 * torch.randn_like(p))
        body = model if kind is XLNetModel else model.transformer
        body.load_state_dict(encoder)
        return model

    def inputs(self, prefix, *leading):
        """Rows of which the first is padded on the left, two segments and a last token of its own. Left-to-right
        attention of the package fails on masks of more than one row."""
        shape = leading or (self.batch,)
        ids = torch.randint(9, self.config.vocab_size, (*shape, LENGTH))
        mask = torch.ones(*shape, LENGTH)
        mask.view(-1, LENGTH)[0, :PADS] = 0.0
        kinds = torch.zeros(*shape, LENGTH, dtype=torch.long)
        kinds[..., LENGTH // 2:] = 1
        kinds[..., -1] = 2
        inputs = dict(input_ids=ids, token_type_ids=kinds)
        if self.config.attn_type == "bi":
            inputs["attention_mask"] = mask
        for name, tensor in inputs.items():
            self.put(prefix + name, tensor)
        return inputs

    def gradients(self, prefix, model):
        base = "transformer." if isinstance(model, XLNetModel) else ""
        for name, p in model.named_parameters():
            if p.grad is not None:
                self.put(f"{prefix}grad.{base}{name}", p.grad)

    def head(self, prefix, model, **inputs):
        """Runs a head with labels, and keeps its weights, loss and gradients."""
        for name, tensor in model.state_dict().items():
            if name.startswith(HEADS):
                self.put(f"{prefix}head.{name}", tensor)
        out = model(**inputs)
        out.loss.backward()
        self.put(prefix + "loss", out.loss)
        self.gradients(prefix, model)
        return out


def encode(cases, encoder):
    model = cases.model(XLNetModel, encoder)
    out = model(**cases.inputs("encode."), use_mems=False, output_hidden_states=True)
    weights = torch.randn_like(out.last_hidden_state)
    (out.last_hidden_state * weights).sum().backward()
    cases.put("encode.cotangent", weights)
    cases.put("encode.last_hidden_state", out.last_hidden_state)
    for i, hidden in enumerate(out.hidden_states):
        cases.put(f"encode.hidden.{i}", hidden)
    cases.gradients("encode.", model)


def permutation(cases, lm):
    batch, vocabulary = cases.batch, cases.config.vocab_size
    first = torch.randint(9, vocabulary, (batch, LENGTH))
    kinds = torch.zeros(batch, LENGTH, dtype=torch.long)
    kinds[:, LENGTH // 2:] = 1
    with torch.no_grad():
        mems = lm(first, token_type_ids=kinds, use_mems=True).mems
    order = torch.stack([torch.randperm(LENGTH) for _ in range(batch)])
    blocked = (order.unsqueeze(1) >= order.unsqueeze(2)).float()
    targets = torch.stack([torch.randperm(LENGTH)[:TARGETS] for _ in range(batch)])
    inputs = dict(input_ids=torch.randint(9, vocabulary, (batch, LENGTH)), token_type_ids=kinds,
                  target_mapping=torch.nn.functional.one_hot(targets, LENGTH).float(),
                  labels=torch.randint(9, vocabulary, (batch, TARGETS)))
    if cases.config.attn_type == "bi":
        inputs["perm_mask"] = blocked
    out = lm(**inputs, mems=mems, use_mems=True)
    out.loss.backward()
    cases.put("plm.first_ids", first)
    cases.put("plm.first_token_type_ids", kinds)
    for name, tensor in inputs.items():
        cases.put(f"plm.{name}", tensor)
    for i, (old, new) in enumerate(zip(mems, out.mems)):
        cases.put(f"plm.mems.{i}", old)
        cases.put(f"plm.new_mems.{i}", new)
    cases.put("plm.logits", out.logits)
    cases.put("plm.loss", out.loss)
    cases.gradients("plm.", lm)


def heads(cases, encoder, starts, ends):
    def labelled(prefix, kind, labels, leading=(), **more):
        inputs = cases.inputs(prefix, *leading)
        cases.put(prefix + "labels", labels)
        out = cases.head(prefix, cases.model(kind, encoder, **more), **inputs, labels=labels, use_mems=False)
        cases.put(prefix + "logits", out.logits)

    labelled("classify.", XLNetForSequenceClassification, torch.randint(0, 3, (cases.batch,)), num_labels=3)
    labelled("regress.", XLNetForSequenceClassification, torch.randn(cases.batch), num_labels=1)
    labelled("choice.", XLNetForMultipleChoice, torch.randint(0, OPTIONS, (cases.batch,)),
             leading=(cases.batch, OPTIONS))
    model = cases.model(XLNetForQuestionAnswering, encoder, start_n_top=starts, end_n_top=ends)
    inputs = cases.inputs("span.")
    inputs["p_mask"] = torch.zeros(cases.batch, LENGTH)
    inputs["p_mask"][:, LENGTH - 3:LENGTH - 1] = 1.0
    inputs["cls_index"] = torch.full((cases.batch,), LENGTH - 1)
    answers = dict(start_positions=torch.randint(0, LENGTH - 3, (cases.batch,)),
                   end_positions=torch.randint(0, LENGTH - 3, (cases.batch,)),
                   is_impossible=(torch.arange(cases.batch) % 2).float())
    for name in ("p_mask", "cls_index"):
        cases.put(f"span.{name}", inputs[name])
    for name, tensor in answers.items():
        cases.put(f"span.{name}", tensor)
    cases.head("span.", model, **inputs, **answers, use_mems=False)
    with torch.no_grad():
        found = model(**inputs, use_mems=False)
    for name in ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index", "cls_logits"):
        cases.put(f"span.infer.{name}", getattr(found, name))


def main():
    torch.set_num_threads(1)
    for number, text in enumerate(sys.argv[2:]):
        write(pathlib.Path(sys.argv[1]) / str(number), {**DEFAULTS, **json.loads(text)})


def write(folder, wanted):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    batch, starts, ends = (wanted.pop(key, value) for key, value in (("batch", 2), ("starts", 3), ("ends", 2)))
    cases = Cases(XLNetConfig(**wanted), batch)
    lm = XLNetLMHeadModel(cases.config).eval()
    with torch.no_grad():
        for p in lm.parameters():
            p.add_(0.1 * torch.randn_like(p))
    lm.tie_weights()
    lm.config.save_pretrained(folder)
    state = {k: v.clone().contiguous() for k, v in lm.state_dict().items() if k != "lm_loss.weight"}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    encoder = {k.removeprefix("transformer."): v for k, v in state.items() if k.startswith("transformer.")}
    encode(cases, encoder)
    permutation(cases, lm)
    heads(cases, encoder, starts, ends)
    save_file(cases.tensors, folder / "cases.safetensors")


if __name__ == "__main__":
    main()
