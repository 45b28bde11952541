"""attn_implementation="horner" in any model of transformers that goes through its AttentionInterface."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from horner._sdpa import parse, sdpa

READY = ("softmax", "taylor:order=2", "taylor:order=4", "taylor:order=6")


def function_of(kind: str) -> Callable[..., tuple[Tensor, None]]:
    parse(kind)

    def horner_attention(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        is_causal: bool | None = None,
        sliding_window: int | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """query (B,H,Tq,K), key and value (B,G,Tk,.), attention_mask (B,Tk) -> (B,Tq,H,V)."""
        causal = bool(getattr(module, "is_causal", True)) if is_causal is None else is_causal
        chosen = f"window:window={sliding_window}" if sliding_window and kind == "softmax" else kind
        o = sdpa(query, key, value, attention_mask, dropout, causal, scaling, kind=chosen)
        return o.transpose(1, 2).contiguous(), None

    return horner_attention


def padding(
    *_: Any, kv_length: int = 0, attention_mask: Tensor | None = None, **__: Any
) -> Tensor | None:
    """The mask of padding (B,Tk), or none: causality is the op's own."""
    if attention_mask is None:
        return None
    mask = attention_mask[:, -kv_length:].bool()
    return None if bool(mask.all()) else mask


def name_of(kind: str) -> str:
    return "horner" if kind == "softmax" else f"horner:{kind}"


def register(kind: str) -> str:
    """Makes a kind of horner.sdpa known to transformers and returns its name for attn_implementation."""
    name = name_of(kind)
    AttentionInterface.register(name, function_of(kind))
    AttentionMaskInterface.register(name, padding)
    return name


def register_ready() -> None:
    for kind in READY:
        register(kind)
