"""Transformer-XL of transformers 4.33.3, from three of its files, without the rest of that package.

Later releases of transformers have no Transformer-XL, and this one does not install beside today's Python. Its files import base classes
and helpers for documentation from the package around them. Stand-ins for these do what training needs.
"""

import dataclasses
import importlib
import logging
import sys
import types

from torch import nn

PACKAGE = "public_transformers"


class PretrainedConfig:
    """What the model reads of a configuration beside its own keys."""
    output_attentions = output_hidden_states = torchscript = False
    use_return_dict = tie_word_embeddings = True

    def __init__(self, **keys):
        self.__dict__.update(keys)


class PreTrainedModel(nn.Module):
    """Draws the weights and ties those of the embedding to those of the softmax."""

    def __init__(self, config):
        super().__init__()
        self.config = config

    def post_init(self):
        self.apply(self._init_weights)
        self.tie_weights()

    def tie_weights(self):
        """Nothing to tie in the model without a head."""

    def _tie_or_clone_weights(self, output, embedding):
        output.weight = embedding.weight


class ModelOutput:
    """A dataclass whose fields are also told by their place."""

    def __getitem__(self, place):
        values = [getattr(self, field.name) for field in dataclasses.fields(self)]
        return [value for value in values if value is not None][place]


def undecorated(*_, **__):
    """In place of a decorator that writes documentation."""
    return lambda function: function


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content, __path__=[])
    sys.modules[name] = made
    return made


def load(folder):
    """The classes TransfoXLConfig and TransfoXLLMHeadModel of the files in `folder`."""
    module(PACKAGE)
    module(f"{PACKAGE}.configuration_utils", PretrainedConfig=PretrainedConfig)
    module(f"{PACKAGE}.modeling_utils", PreTrainedModel=PreTrainedModel)
    module(f"{PACKAGE}.utils", ModelOutput=ModelOutput, logging=types.SimpleNamespace(get_logger=logging.getLogger),
           add_code_sample_docstrings=undecorated, add_start_docstrings=undecorated,
           add_start_docstrings_to_model_forward=undecorated)
    module(f"{PACKAGE}.models")
    module(f"{PACKAGE}.models.transfo_xl").__path__ = [str(folder)]
    model = importlib.import_module(f"{PACKAGE}.models.transfo_xl.modeling_transfo_xl")
    return model.TransfoXLConfig, model.TransfoXLLMHeadModel
