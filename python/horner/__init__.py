"""Softmax attention and everything that approximates it, as one recurrence.

>>> import torch, horner
>>> q, k, v = torch.randn(3, 2, 128, 4, 16).unbind()      # each (B,T,H,K)
>>> horner.power(q, k, v, order=2).o.shape                # softmax attention to second order
torch.Size([2, 128, 4, 16])
>>> horner.nn.GLA(64, heads=4)(torch.randn(2, 128, 64)).shape
torch.Size([2, 128, 64])
"""

import torch as _torch

from horner import _library as _library  # loads the ops before anything can call them
from horner import nn
from horner._after_import import after_import as _after_import
from horner.folder import load, save
from horner.ops import Form, Result, attention, delta, form, linear, power, scan
from horner._sdpa import sdpa

__version__: str = _torch.ops.horner.version()

__all__ = [
    "Form", "Result", "attention", "attn_implementation", "delta", "form", "linear", "load", "nn",
    "power", "save", "scan", "sdpa",
]


def attn_implementation(kind: str) -> str:
    """A kind of horner.sdpa as attn_implementation of transformers: attn_implementation("window:window=64")."""
    from horner import _attn_implementation

    return _attn_implementation.register(kind)


def _register_models() -> None:
    from horner import _transformers

    _transformers.register_models()


def _register_attention() -> None:
    from horner import _attn_implementation

    _attn_implementation.register_ready()


_after_import("transformers.modeling_utils", _register_attention)
_after_import("transformers.models.auto.modeling_auto", _register_models)
