"""Attention in the layout of torch.nn.functional.scaled_dot_product_attention: (B,H,T,K)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from horner.ops import Form, attention, power

KINDS = ("softmax", "window", "taylor")
FEW = 16  # queries of taylor for which all pairs are cheaper than the recurrence


def parse(kind: str) -> tuple[str, dict[str, Any]]:
    """"taylor:order=4" -> ("taylor", {"order": 4})."""
    name, _, rest = kind.partition(":")
    if name not in KINDS:
        raise ValueError(f"[sdpa] kind must be one of {', '.join(KINDS)}, got {name!r}")
    known = {"softmax": (), "window": ("window", "sinks"), "taylor": ("order",)}[name]
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        if key not in known or key in options or not value.isdigit():
            raise ValueError(f"[sdpa] {name} takes {', '.join(known) or 'no setting'}, got {item!r}")
        options[key] = int(value)
    if name == "window" and not options.get("window"):
        raise ValueError("[sdpa] window needs its width: window:window=64")
    if options.get("order", 0) % 2:
        raise ValueError(f"[sdpa] taylor needs an even order, since the sum of an odd series can vanish, got {options['order']}")
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
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """A drop-in for torch.nn.functional.scaled_dot_product_attention.

    query (B,H,Tq,K), key (B,G,Tk,K), value (B,G,Tk,V) -> (B,H,Tq,V). G divides H; enable_gqa is not needed.

    attn_mask   (B,1,1,Tk) or (B,Tk), True where there is a token: padding at either end of a row. A padded query
                gets 0. Any other mask is refused. So is (B,Tk) if B = Tq > 1, because torch reads it as (Tq,Tk).
    is_causal   with Tq < Tk the queries are the last Tq tokens, as in decoding. (torch aligns the first ones; the
                two agree where Tq = Tk.)
    kind        softmax, window:window=64,sinks=4 or taylor:order=4 (the power series of softmax, cut after `order`)
    scale       1/sqrt(K) by default, for every kind
    cu_seqlens  (n+1) ints: tokens cu_seqlens[j] .. cu_seqlens[j+1] of all rows one after the other are sequence j
    """
    if dropout_p:
        raise ValueError(f"[sdpa] takes no dropout, got dropout_p = {dropout_p}")
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() != 4:
            raise ValueError(f"[sdpa] {name} must have 4 dimensions (B,H,T,K), got {tuple(x.shape)}")
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))  # (B,T,H,K)
    if k.shape[1] < 1:
        raise ValueError("[sdpa] there must be a key, got Tk = 0")
    if is_causal and q.shape[1] > k.shape[1]:
        raise ValueError(f"[sdpa] is_causal needs Tq <= Tk, got {q.shape[1]} and {k.shape[1]}")
    if cu_seqlens is not None:
        if attn_mask is not None or q.shape[1] != k.shape[1]:
            raise ValueError("[sdpa] cu_seqlens takes no attn_mask, and as many queries as keys")
        B, T, H, _ = q.shape
        q, k, v = (x.flatten(0, 1)[None] for x in (q, k, v))
        return _run(q, k, v, cu_seqlens, is_causal, scale, kind, form).view(B, T, H, -1).transpose(1, 2)
    if attn_mask is not None:
        return _padded(q, k, v, _tokens(attn_mask, q, k), is_causal, scale, kind, form).transpose(1, 2)
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
    if Tq > Tk:  # queries do not see each other: as many at a time as there are keys
        starts = range(0, Tq, Tk)
        pieces = [_run(q[:, i : i + Tk], k, v, None, causal, scale, kind, form) for i in starts]
        return torch.cat(pieces, 1)
    if Tq < Tk and name == "taylor" and Tq <= FEW:
        return _series(q, k, v, causal, scale, **options)
    state = None
    if causal and Tq < Tk and name != "taylor":
        state, k, v = _past(k, v, Tk - Tq, **options)
    elif Tq < Tk:
        if name == "window":
            raise ValueError("[sdpa] a window of both directions needs Tq = Tk")
        before = Tk - Tq if causal else 0  # causal: the queries are the last tokens
        q = pad(q, (0, 0, 0, 0, before, Tk - Tq - before))
    if name == "taylor":
        order = options.get("order", 2)
        o = power(q, k, v, None, None, cu_seqlens, form=form, scale=scale, causal=causal, order=order).o
    else:
        o = attention(q, k, v, state, cu_seqlens, form=form, scale=scale, causal=causal, **options).o
    return o if o.shape[1] == Tq else o[:, -Tq:] if causal else o[:, :Tq]


def _past(k: Tensor, v: Tensor, P: int, window: int = 0, sinks: int = 0) -> tuple[list[Tensor], Tensor, Tensor]:
    """The state of attention after the first P tokens, and the keys and values of the others."""
    seen = torch.full(k.shape[:1] + k.shape[2:3], P, dtype=torch.int64, device=k.device)
    first = max(0, P - window) if window else 0
    empty = max(0, window - P)  # slots of a window that hold nothing, before the others
    state = [x[:, first:P].transpose(1, 2) for x in (k, v)]
    if empty:
        state = [pad(x, (0, 0, empty, 0)) for x in state]
    state.append(seen)
    if sinks:
        kept = min(P, sinks)
        state += [pad(x[:, :kept].transpose(1, 2), (0, 0, 0, sinks - kept)) for x in (k, v)]
    return state, k[:, P:], v[:, P:]


def _series(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, order: int = 2
) -> Tensor:
    """The op `power` for a few queries: sum_s p(x_ts) v_s / sum_s p(x_ts), all pairs at once. q (B,Tq,H,K) -> (B,Tq,H,V)."""
    B, Tq, _, K = q.shape
    wide = torch.promote_types(q.dtype, torch.float32)
    x = torch.einsum("btgrk,bsgk->bgrts", q.reshape(B, Tq, k.shape[2], -1, K).to(wide), k.to(wide))
    x = x * (K**-0.5 if scale is None else scale)
    w = torch.ones_like(x)
    for n in range(order, 0, -1):
        w = 1 + x / n * w  # Horner's rule for sum_n x^n / n!
    if causal:
        w = w.tril(k.shape[1] - Tq)
    o = torch.einsum("bgrts,bsgv->btgrv", w / w.sum(-1, keepdim=True), v.to(wide))
    return o.flatten(2, 3).to(v.dtype)


def _tokens(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The mask of padding as (B,Tk), True where there is a token."""
    B, Tk = k.shape[:2]
    if mask.dim() == 2 and mask.shape == (q.shape[1], Tk) and B == q.shape[1] > 1:
        raise ValueError(f"[sdpa] attn_mask {tuple(mask.shape)} may mean (B,Tk) or torch's (Tq,Tk): give (B,1,1,Tk)")
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
    """Rows without their padding: as a packed batch, or one at a time if queries and keys differ in number."""
    B, Tq = q.shape[:2]
    if Tq == k.shape[1]:
        inside = tokens.flatten().nonzero()[:, 0]
        cu_seqlens = pad(tokens.sum(1).cumsum(0), (1, 0))
        q, k, v = (x.flatten(0, 1)[inside][None] for x in (q, k, v))
        o = _run(q, k, v, cu_seqlens, causal, scale, kind, form)[0]
        flat = torch.zeros((B * Tq, *o.shape[1:]), dtype=o.dtype, device=o.device)
        return flat.index_copy(0, inside, o).view(B, Tq, *o.shape[1:])
    o = v.new_zeros((B, Tq, q.shape[2], v.shape[3]))
    same = bool((tokens == tokens[:1]).all())  # one cut for all rows
    for rows in [slice(B)] if same else [slice(b, b + 1) for b in range(B)]:
        own = tokens[rows][0]
        asked = own[-Tq:] if causal else torch.ones_like(own[:1]).expand(Tq)
        if bool(own.any()) and bool(asked.any()):
            keys, queries = _places(own), _places(asked)
            o[rows, queries] = _run(
                q[rows, queries], k[rows, keys], v[rows, keys], None, causal, scale, kind, form
            )
    return o


def _places(inside: Tensor) -> slice | Tensor:
    """Where the mask (T) is True; a slice if that is one stretch."""
    places = inside.nonzero()[:, 0]
    first, n = int(places[0]), len(places)
    return slice(first, first + n) if int(places[-1]) == first + n - 1 else places
