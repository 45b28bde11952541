"""Layers and models as torch.nn modules: every mixer of the list, made from the list itself.

>>> import torch, horner
>>> layer = horner.nn.GLA(64, heads=4)
>>> layer(torch.randn(2, 128, 64)).shape
torch.Size([2, 128, 64])
"""

from horner.nn._list import mixers
from horner.nn._mixer import Mixer, class_of
from horner.nn._model import Block, Model

_classes = {row.title: class_of(row) for row in mixers()}
globals().update(_classes)

__all__ = ["Block", "Mixer", "Model", *_classes]  # noqa: PLE0604
