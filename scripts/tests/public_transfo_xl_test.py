#!/usr/bin/env python3
"""The Transformer-XL that gpu-bench makes of three files is that of their package: same parameters, loss and gradients.

    PYTHON scripts/tests/public_transfo_xl_test.py      PYTHON: scripts/peers.sh python transfoxl
"""

import pathlib
import sys
import unittest

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
sys.dont_write_bytecode = True

from kit.public_transfo_xl import load  # noqa: E402

FILES = pathlib.Path(transformers.__file__).parent / "models/transfo_xl"
SIZES = dict(vocab_size=500, d_model=32, d_embed=32, n_head=2, d_head=16, d_inner=64, n_layer=2, mem_len=32, clamp_len=-1,
             same_length=False, untie_r=False, dropout=0.1, dropatt=0.1)


def step(model, ids):
    """Loss and gradients of a second segment behind a first, dropout on."""
    torch.manual_seed(3)
    memory = model(input_ids=ids, labels=ids.clone()).mems
    loss = model(input_ids=ids, labels=ids.clone(), mems=memory).loss
    loss.backward()
    return loss, {name: parameter.grad for name, parameter in model.named_parameters()}


class PublicModel(unittest.TestCase):
    def test_it_is_that_of_its_package(self):
        for cutoffs, div_val in (([40, 120, 300], 2), ([40, 120, 300], 1), ([], 1)):
            with self.subTest(cutoffs=cutoffs, div_val=div_val):
                sizes = dict(SIZES, cutoffs=cutoffs, div_val=div_val)
                config, model = load(FILES)
                ours, theirs = model(config(**sizes)), transformers.TransfoXLLMHeadModel(transformers.TransfoXLConfig(**sizes))
                theirs.load_state_dict(ours.state_dict())
                ids = torch.randint(0, sizes["vocab_size"], (4, 32))
                (loss, grads), (expected, expected_grads) = step(ours, ids), step(theirs, ids)
                self.assertEqual(loss.item(), expected.item())
                self.assertEqual(list(grads), list(expected_grads))
                for name, grad in grads.items():
                    self.assertTrue(torch.equal(grad, expected_grads[name]), name)


if __name__ == "__main__":
    unittest.main()
