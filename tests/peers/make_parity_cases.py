#!/usr/bin/env python3
"""Reference numbers of Hugging Face's Transformer-XL (transformers 4.33.3) for any configuration.

  make_parity_cases.py FOLDER '{"div_val": 1, "cutoffs": [20, 40], ...}' ..

writes for each configuration FOLDER/NUMBER/{config.json, model.safetensors, cases.safetensors}, numbered from 0: a
tiny model with random weights, and three linked segments with memory, losses, log-probabilities and gradients, as
`segue parity` reads them. Exits with 2 where the packages are not installed.
"""
import json
import pathlib
import sys

try:
    import torch
    from safetensors.torch import save_file
    from transformers import TransfoXLConfig, TransfoXLLMHeadModel
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(2)

DEFAULTS = dict(vocab_size=100, cutoffs=[20, 40], d_model=32, d_embed=32, n_head=4, d_head=8, d_inner=64,
                div_val=2, n_layer=3, mem_len=12, clamp_len=-1, same_length=False, pre_lnorm=False,
                untie_r=True, dropout=0.0, dropatt=0.0, proj_share_all_but_first=True)
BATCH, SEGMENT, SEGMENTS = 2, 10, 3


def main():
    torch.set_num_threads(1)
    for number, text in enumerate(sys.argv[2:]):
        write(pathlib.Path(sys.argv[1]) / str(number), TransfoXLConfig(**{**DEFAULTS, **json.loads(text)}))


def write(folder, config):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    model = TransfoXLLMHeadModel(config).eval()
    with torch.no_grad():
        for p in model.parameters():  # fresh biases are zero, and would hide mistakes
            p.add_(0.2 * torch.randn_like(p))
    model.tie_weights()
    config.save_pretrained(folder)
    save_file({k: v.clone().contiguous() for k, v in model.state_dict().items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    cases, mems = {}, None
    for s in range(SEGMENTS):
        ids = torch.randint(0, config.vocab_size, (BATCH, SEGMENT))
        model.zero_grad()
        out = model(ids, mems=mems, labels=ids, output_hidden_states=True)
        out.loss.backward()
        with torch.no_grad():
            plain = model(ids, mems=mems)
        mems = out.mems
        put = lambda name, t: cases.__setitem__(f"segment{s}.{name}", t.detach().clone().contiguous())
        put("input_ids", ids)
        put("losses", out.losses)
        put("loss", out.loss)
        put("last_hidden_state", out.hidden_states[-1])
        put("log_probs", plain.prediction_scores.view(BATCH, SEGMENT, -1))
        for i, m in enumerate(mems or []):
            put(f"mems.{i}", m)
        for name, p in model.named_parameters():
            if p.grad is not None:
                put(f"grad.{name}", p.grad)
    save_file(cases, folder / "cases.safetensors")


if __name__ == "__main__":
    main()
