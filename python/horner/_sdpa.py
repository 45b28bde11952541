"""Attention in the layout of torch.nn.functional.scaled_dot_product_attention: (B,H,T,K)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from horner.ops import Form, attention, power

KINDS = ("softmax", "window", "taylor")


def parse(kind: str) -> tuple[str, dict[str, Any]]:
    """"taylor:order=4" -> ("taylor", {"order": 4})."""
    name, _, rest = kind.partition(":")
    if name not in KINDS:
        raise ValueError(f"[sdpa] kind must be one of {', '.join(KINDS)}, got {name!r}")
    known = {"softmax": (), "window": ("window", "sinks"), "taylor": ("order",)}[name]
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        if key not in known or not value.isdigit():
            raise ValueError(f"[sdpa] {name} takes {', '.join(known) or 'no setting'}, got {item!r}")
        options[key] = int(value)
    if name == "window" and not options.get("window"):
        raise ValueError("[sdpa] window needs its width: window:window=64")
    return name, options


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    kind: str = "softmax",
    form: Form = "auto",
) -> Tensor:
    """A drop-in for torch.nn.functional.scaled_dot_product_attention.

    query (B,H,Tq,K), key (B,G,Tk,K), value (B,G,Tk,V) -> (B,H,Tq,V). G divides H; enable_gqa is not needed.

    attn_mask   (B,Tk) or (B,1,1,Tk), True where there is a token: padding at either end of a row. A padded query
                gets 0. Any other mask is refused.
    is_causal   with Tq < Tk the queries are the last Tq tokens, as in decoding. (torch aligns the first ones; the
                two agree where Tq = Tk.)
    kind        softmax, window:window=64,sinks=4 or taylor:order=4 (the power series of softmax, cut after `order`)
    scale       1/sqrt(K) by default, for every kind
    """
    if dropout_p:
        raise ValueError(f"[sdpa] takes no dropout, got dropout_p = {dropout_p}")
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() != 4:
            raise ValueError(f"[sdpa] {name} must have 4 dimensions (B,H,T,K), got {tuple(x.shape)}")
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))  # (B,T,H,K)
    if attn_mask is not None:
        return _padded(q, k, v, _tokens(attn_mask, k), is_causal, scale, kind, form).transpose(1, 2)
    return _run(q, k, v, None, is_causal, scale, kind, form).transpose(1, 2)


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor | None,
    causal: bool,
    scale: float | None,
    kind: str,
    form: Form,
) -> Tensor:
    """q (B,Tq,H,K), k (B,Tk,G,K), v (B,Tk,G,V) -> (B,Tq,H,V)."""
    name, options = parse(kind)
    Tq, Tk = q.shape[1], k.shape[1]
    if causal and Tq > Tk:
        raise ValueError(f"[sdpa] is_causal needs Tq <= Tk, got {Tq} and {Tk}")
    if Tq > Tk:  # queries do not see each other: as many at a time as there are keys
        starts = range(0, Tq, Tk)
        pieces = [_run(q[:, i : i + Tk], k, v, None, causal, scale, kind, form) for i in starts]
        return torch.cat(pieces, 1)
    state = None
    if causal and Tq < Tk and name == "softmax":
        past = Tk - Tq
        seen = torch.full(k.shape[:1] + k.shape[2:3], past, dtype=torch.int64, device=k.device)
        state = [k[:, :past].transpose(1, 2), v[:, :past].transpose(1, 2), seen]
        k, v = k[:, past:], v[:, past:]
    elif Tq < Tk:
        if name == "window" and not causal:
            raise ValueError("[sdpa] a window of both directions needs Tq = Tk")
        before = Tk - Tq if causal else 0  # causal: the queries are the last tokens
        q = pad(q, (0, 0, 0, 0, before, Tk - Tq - before))
    if name == "taylor":
        order = options.get("order", 2)
        o = power(q, k, v, None, None, cu_seqlens, form=form, scale=scale, causal=causal, order=order).o
    else:
        o = attention(q, k, v, state, cu_seqlens, form=form, scale=scale, causal=causal, **options).o
    return o if o.shape[1] == Tq else o[:, -Tq:] if causal else o[:, :Tq]


def _tokens(mask: Tensor, k: Tensor) -> Tensor:
    """The mask of padding as (B,Tk), True where there is a token."""
    B, Tk = k.shape[:2]
    if mask.dtype != torch.bool:
        raise ValueError(f"[sdpa] attn_mask must be boolean, True where there is a token, got {mask.dtype}")
    if mask.dim() == 4 and mask.shape[1] == mask.shape[2] == 1:
        mask = mask[:, 0, 0]
    if mask.dim() != 2 or mask.shape[1] != Tk or mask.shape[0] not in (1, B):
        raise ValueError(f"[sdpa] attn_mask must be (B,Tk) = ({B},{Tk}) or (B,1,1,Tk), got {tuple(mask.shape)}")
    return mask.expand(B, Tk)


def _padded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tokens: Tensor,
    causal: bool,
    scale: float | None,
    kind: str,
    form: Form,
) -> Tensor:
    """Rows without their padding, as a packed batch; a row at a time if queries and keys differ in number."""
    B, Tq = q.shape[:2]
    if Tq == k.shape[1]:
        inside = tokens.flatten().nonzero()[:, 0]
        cu_seqlens = pad(tokens.sum(1).cumsum(0), (1, 0))
        q, k, v = (x.flatten(0, 1)[inside][None] for x in (q, k, v))
        o = _run(q, k, v, cu_seqlens, causal, scale, kind, form)[0]
        flat = torch.zeros((B * Tq, *o.shape[1:]), dtype=o.dtype, device=o.device)
        return flat.index_copy(0, inside, o).view(B, Tq, *o.shape[1:])
    rows = []
    for b in range(B):
        own = tokens[b].nonzero()[:, 0]
        one = slice(b, b + 1)
        rows.append(_run(q[one], k[one, own], v[one, own], None, causal, scale, kind, form))
    return torch.cat(rows)
