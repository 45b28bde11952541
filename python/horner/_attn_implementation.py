"""attn_implementation="horner" in any model of transformers that goes through its AttentionInterface.

transformers describes a mask by a function of the places of a query and a key. The ops hide what lies ahead and what lies
outside of a window by themselves, so such a mask becomes none, padding (B,Tk) or the ends of packed sequences (n+1). Any other
mask is refused, and so is an argument that changes the numbers and that no op knows: nothing is left out in silence.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, bidirectional_mask_function, causal_mask_function

from horner._sdpa import parse, sdpa

READY = ("softmax", "taylor:order=2", "taylor:order=4", "taylor:order=6")
OTHER_MATHEMATICS = ("softcap", "s_aux", "position_bias", "cache", "indices", "block_indices")
REFUSED = "knows causality, windows, padding and packed sequences, and this mask is another one"
MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # of row, head, query and key: whether it is seen


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
        **more: Any,
    ) -> tuple[Tensor, None]:
        """query (B,H,Tq,K), key and value (B,G,Tk,.), attention_mask as from `mask` -> (B,Tq,H,V)."""
        for name in OTHER_MATHEMATICS:
            if more.get(name) is not None:
                _refuse(f"has no {name}, which {type(module).__name__} uses")
        causal = bool(getattr(module, "is_causal", True)) if is_causal is None else is_causal
        chosen = _windowed(kind, sliding_window, key.shape[2])
        cu_seqlens = None
        if attention_mask is not None and attention_mask.dim() == 1:
            attention_mask, cu_seqlens = None, attention_mask
        elif attention_mask is not None and attention_mask.dim() == 2:  # later slots of a cache are unwritten
            key, value = (x[:, :, : attention_mask.shape[1]] for x in (key, value))
            attention_mask = attention_mask[:, None, None]
        o = sdpa(
            query, key, value, attention_mask, dropout, causal, scaling, kind=chosen, cu_seqlens=cu_seqlens
        )
        return o.transpose(1, 2).contiguous(), None

    return horner_attention


def _windowed(kind: str, width: int | None, Tk: int) -> str:
    """The kind in a layer whose window is `width` wide."""
    if not width or Tk <= width:
        return kind
    if kind == "softmax":
        return f"window:window={width}"
    name, options = parse(kind)
    if name != "window" or options["window"] > width:
        _refuse(f"knows no {kind} in a window of {width} tokens, which this model has")
    return kind


def _refuse(what: str) -> None:
    raise ValueError(f'attn_implementation="horner" {what}; take "sdpa" or "eager" for this model')


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int | Tensor = 0,
    mask_function: MaskFunction = causal_mask_function,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **more: Any,
) -> Tensor | None:
    """None, padding (B,Tk), or cu_seqlens (n+1) of the rows one after the other. Keys after Tk are unwritten slots."""
    causal = "allow_is_bidirectional_skip" not in more
    first, begin = int(q_offset), int(kv_offset)  # places of the first query and key
    end = min(begin + kv_length, first + q_length) if causal else begin + kv_length
    cu_seqlens = None
    if use_vmap:
        _refuse("takes no mask function of one's own")
    if mask_function not in (causal_mask_function, bidirectional_mask_function):
        row = torch.arange(batch_size, device=device)[:, None]

        def sees(q: Tensor, k: Tensor) -> Tensor:
            return mask_function(row, torch.zeros_like(row), q.expand(batch_size, -1), k.expand(batch_size, -1))

        q = torch.arange(first, first + q_length, device=device)[None]
        cu_seqlens = _sequences(sees, q, begin, end, local_size, causal)
    padding = None
    if attention_mask is not None:
        padding = attention_mask[:, begin:end].bool()
        padding = None if bool(padding.all()) else padding
    if cu_seqlens is not None and padding is not None:
        _refuse("takes no padding beside packed sequences or chunks")
    if padding is None and end < begin + kv_length:
        padding = torch.ones(batch_size, end - begin, dtype=torch.bool, device=device)
    return cu_seqlens if cu_seqlens is not None else padding


def _sequences(
    sees: Callable[[Tensor, Tensor], Tensor], q: Tensor, begin: int, end: int, window: int | None, causal: bool
) -> Tensor | None:
    """The ends of packed sequences, if there are any. Refuses a mask that is not low <= key <= high for each query q (1,Q).

    low and high are those of causality, the window and the sequence. Looks at four keys of each query: the two ends and
    what lies beside them.
    """
    start = torch.full_like(q, begin)
    packed, begins = False, torch.zeros_like(q, dtype=torch.bool)
    if causal and not torch.compiler.is_compiling() and int(q[0, 0]) == begin:
        begins = (~sees(q, (q - 1).clamp_min(begin))).index_fill(1, q.new_zeros(1), True)
        packed = bool(begins[:, 1:].any())
        start = torch.where(begins, q, begin).cummax(1).values
    low, high = start, q if causal else torch.full_like(q, end - 1)
    if window is not None:
        low = torch.maximum(low, q - window + causal)  # both directions: the window has its last token inside
        high = high if causal else torch.minimum(high, q + window)
    inside = sees(q, low) & sees(q, high)
    below = (low > begin) & sees(q, (low - 1).clamp_min(begin))
    above = (high < end - 1) & sees(q, (high + 1).clamp_max(end - 1))
    plain = (inside & ~below & ~above).all()
    if torch.compiler.is_compiling():
        torch._assert_async(plain, REFUSED)
    elif not bool(plain):
        _refuse(REFUSED)
    return torch.nn.functional.pad(begins.flatten().nonzero()[:, 0], (0, 1), value=begins.numel()) if packed else None


def name_of(kind: str) -> str:
    return "horner" if kind == "softmax" else f"horner:{kind}"


def register(kind: str) -> str:
    """Makes a kind of horner.sdpa known to transformers and returns its name for attn_implementation."""
    name = name_of(kind)
    AttentionInterface.register(name, function_of(kind))
    AttentionMaskInterface.register(name, mask)
    return name


def register_ready() -> None:
    for kind in READY:
        register(kind)
