#!/usr/bin/env python3
"""Reference numbers of Hugging Face's MarianMTModel for any configuration.

  make_marian_cases.py FOLDER '{"d_model": 16, "scale_embedding": true, ...}' ..

writes for each configuration FOLDER/NUMBER/{config.json, model.safetensors, cases.safetensors}, numbered from 0: a tiny model with random weights, and a
batch of padded pairs with the encoder's states, log-probabilities, the loss and its gradients, as `segue parity` reads them. Exits with 2 where the packages
are not installed.
"""
import json
import pathlib
import sys

try:
    import torch
    from safetensors.torch import save_file
    from transformers import MarianConfig, MarianMTModel
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(2)

DEFAULTS = dict(vocab_size=31, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=2, encoder_ffn_dim=24,
                decoder_ffn_dim=20, max_position_embeddings=16, pad_token_id=30, decoder_start_token_id=30, dropout=0.0)
LENGTHS, TARGETS = [7, 4, 6], [5, 8, 3]


def main():
    torch.set_num_threads(1)
    for number, text in enumerate(sys.argv[2:]):
        write(pathlib.Path(sys.argv[1]) / str(number), MarianConfig(**{**DEFAULTS, **json.loads(text)}))


def write(folder, config):
    torch.manual_seed(1)
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():  # fresh biases are zero, and would hide mistakes
            if "embed_positions" not in name:
                p.add_(0.2 * torch.randn_like(p))
        model.final_logits_bias.normal_()
    for module in model.modules():  # a target begins with padding, whose vector is trained like others
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    model.save_pretrained(folder)
    pad, rows = config.pad_token_id, range(len(LENGTHS))
    ids = torch.randint(1, config.vocab_size - 1, (len(LENGTHS), max(LENGTHS)))
    labels = torch.randint(1, config.vocab_size - 1, (len(LENGTHS), max(TARGETS)))
    mask = torch.zeros_like(ids)
    for row in rows:
        ids[row, LENGTHS[row]:], labels[row, TARGETS[row]:] = pad, -100
        ids[row, LENGTHS[row] - 1], labels[row, TARGETS[row] - 1] = 0, 0
        mask[row, :LENGTHS[row]] = 1
    out = model(input_ids=ids, attention_mask=mask, labels=labels)
    out.loss.backward()
    cases = {"input_ids": ids, "labels": labels, "lengths": torch.tensor(LENGTHS), "loss": out.loss,
             "encoder": out.encoder_last_hidden_state[mask.bool()],
             "log_probs": torch.log_softmax(out.logits, -1)[labels != -100]}
    cases.update({f"grad.{name}": p.grad for name, p in model.named_parameters() if p.grad is not None})
    cases = {f"pairs.{name}": t.detach().clone().contiguous() for name, t in cases.items()}
    save_file(cases, folder / "cases.safetensors")


if __name__ == "__main__":
    main()
