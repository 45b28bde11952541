"""Softmax attention and everything that approximates it, as one recurrence.

>>> import torch, horner
>>> q, k, v = torch.randn(3, 2, 128, 4, 16).unbind()      # each (B,T,H,K)
>>> horner.power(q, k, v, order=2).o.shape                # softmax attention to second order
torch.Size([2, 128, 4, 16])
"""

from horner import _library as _library  # loads the ops before anything can call them
from horner.ops import Form, Result, attention, delta, form, linear, power, scan

__all__ = ["Form", "Result", "attention", "delta", "form", "linear", "power", "scan"]
