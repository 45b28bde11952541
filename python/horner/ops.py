"""The ops. Letters: B batch, T time, H query heads, G key/value heads, K key dim, V value dim.

Query head h reads key/value head h // (H/G). All ops are linear in v, differentiable once in every
floating-point input, and take these arguments:

    state        what an earlier call returned; none: nothing has been seen
    cu_seqlens   (n+1) ints: tokens cu_seqlens[j] .. cu_seqlens[j+1] are sequence j of a packed
                 batch; then B is 1 and every tensor of a state has n rows
    form         how it is computed: auto, recurrent, parallel, chunked, step; one that the op
                 cannot use with these arguments is refused, never replaced
    chunk        tokens per chunk of the chunked form
    scale        factor of q.k. attention and power: 1/sqrt(K) by default, because the weight is e^x or its
                 series and x must not grow with K. linear and delta: 1, because there it is a factor of o only
    causal       a token reads the past and itself; False: both directions
    final_state  return the state after the last token
    log_norm     return the log of the normaliser
    check        refuse numbers that break a rule of the op, and name the place: log-decays above 0, beta outside
                 [0, 2], keys of delta longer than 1, a sum of weights that is not above 0. It reads every input.
                 None: on if the environment has HORNER_CHECK=1
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, ParamSpec

import torch
from torch import Tensor

Form = Literal[
    "auto", "recurrent", "step", "parallel", "chunked",
    "step kernel", "chunked kernel", "wide kernel", "parallel kernel", "direct kernel",
    "recurrent kernel",
]
Arguments = ParamSpec("Arguments")


class Result(NamedTuple):
    """What an op returns."""

    o: Tensor  # (B,T,H,V)
    state: list[Tensor]  # each (B,G,...); empty unless final_state
    norm: Tensor | None  # (B,T,H), None unless log_norm


def _checked(check: bool | None, op: Any, *args: Any, **options: Any) -> Any:
    """Calls the op with checks of numbers on, off, or as HORNER_CHECK says."""
    if check is None or torch.compiler.is_compiling():  # a traced graph has no numbers
        return op(*args, **options)
    torch.ops.horner.set_check(check)
    try:
        return op(*args, **options)
    finally:
        torch.ops.horner.set_check(None)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Sequence[Tensor] | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    form: Form = "auto",
    chunk: int = 64,
    scale: float | None = None,
    causal: bool = True,
    window: int = 0,
    sinks: int = 0,
    clamp: float | None = None,
    log_norm: bool = False,
    final_state: bool = False,
    check: bool | None = None,
) -> Result:
    """Softmax attention over all tokens, a window, or both directions.

        o_t    = sum_s softmax_s(scale q_t.k_s) v_s
        norm_t = log sum_s exp(scale q_t.k_s)

    s runs over s <= t (causal); with a window over |t - s| < window and the first `sinks` tokens.
    Scores above `clamp` count as `clamp`.

    q (B,T,H,K), k (B,T,G,K), v (B,T,G,V); o (B,T,H,V), norm (B,T,H). scale: 1/sqrt(K) by default.
    The state is the key/value cache, as long as what is visible. In eager code it grows in place:
    a new state shares memory with the old one, and both stay valid. A compiled graph copies it.
    """
    in_place = not torch.compiler.is_compiling()
    call = torch.ops.horner.attention_in_place if in_place else torch.ops.horner.attention
    o, state_final, norm = _checked(
        check,
        call,
        q,
        k,
        v,
        state,
        cu_seqlens,
        form=form,
        chunk=chunk,
        scale=scale,
        causal=causal,
        window=window,
        sinks=sinks,
        clamp=clamp,
        log_norm=log_norm,
        final_state=final_state,
    )
    return Result(o, state_final, norm if log_norm else None)


def power(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    state: Sequence[Tensor] | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    form: Form = "auto",
    chunk: int = 128,
    scale: float | None = None,
    causal: bool = True,
    order: int = 2,
    coefficients: Sequence[float] = (),
    decay: Literal["outside", "inside"] = "outside",
    norm: Literal["sum", "none"] = "sum",
    odd: bool = False,
    eps: float = 1e-30,
    log_norm: bool = False,
    final_state: bool = False,
    check: bool | None = None,
) -> Result:
    """Softmax's power series, cut after `order`: a sum of recurrent networks (arXiv 2507.23632).

        p(x)  = sum_{n <= order} c_n x^n                    c_n = 1/n! unless `coefficients` says
        w_ts  = exp(G_t - G_s) p(scale q_t.k_s)                               decay = outside
        w_ts  = p(scale sum_c q_tc k_sc exp(G_tc - G_sc))                     decay = inside
        y_t   = sum_{s <= t} w_ts v_s,  den_t = sum_{s <= t} w_ts,  G_t = g_1 + .. + g_t
        o_t   = y_t / max(den_t, eps), norm_t = log den_t                     norm = sum
        o_t   = y_t                                                           norm = none

    In both directions the decay between t and s is the same as between s and t.

    q (B,T,H,K), k (B,T,G,K), v (B,T,G,V), g (B,T,G), inside also (B,T,G,K): log-decay <= 0;
    o (B,T,H,V), norm (B,T,H). scale: 1/sqrt(K) by default. An odd order has a real root, so
    norm = sum then needs odd = True.
    """
    o, state_final, log_den = _checked(
        check,
        torch.ops.horner.power,
        q,
        k,
        v,
        g,
        state,
        cu_seqlens,
        form=form,
        chunk=chunk,
        scale=scale,
        causal=causal,
        order=order,
        coefficients=coefficients,
        decay=decay,
        norm=norm,
        odd=odd,
        eps=eps,
        log_norm=log_norm,
        final_state=final_state,
    )
    return Result(o, state_final, log_den if log_norm else None)


def linear(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    i: Tensor | None = None,
    state: Sequence[Tensor] | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    form: Form = "auto",
    chunk: int = 64,
    scale: float | None = None,
    causal: bool = True,
    norm: Literal["none", "sum", "bounded"] = "none",
    eps: float = 1e-30,
    log_norm: bool = False,
    final_state: bool = False,
    check: bool | None = None,
) -> Result:
    """Linear attention with decay: RetNet, GLA, MetaLA, Mamba-2, mLSTM.

        S_t   = diag(exp g_t) S_{t-1} + k_t^T v_t
        z_t   = diag(exp g_t) z_{t-1} + k_t^T,  den_t = scale q_t z_t
        o_t   = scale q_t S_t                                                 norm = none
        o_t   = scale q_t S_t / max(den_t, eps), norm_t = log den_t           norm = sum
        o_t   = scale q_t S_t / max(|den_t|, 1), keys weighted by exp i_t     norm = bounded

    In both directions the decay between t and s is the same as between s and t.

    q (B,T,H,K), k (B,T,G,K), v (B,T,G,V), g (B,T,G) or (B,T,G,K): log-decay <= 0; o (B,T,H,V),
    norm (B,T,H), state S (B,G,K,V), with norm = sum (B,G,K,V+1) and z in its last column.
    i (B,T,G) is mLSTM's input gate, any number; it goes with norm = bounded and g (B,T,G). Its state
    is S e^{-m} (B,G,K,V+1) and the running maximum m (B,G), so that e^i never overflows.
    scale: 1 by default.
    """
    o, state_final, log_den = _checked(
        check,
        torch.ops.horner.linear,
        q,
        k,
        v,
        g,
        i,
        state,
        cu_seqlens,
        form=form,
        chunk=chunk,
        scale=scale,
        causal=causal,
        norm=norm,
        eps=eps,
        log_norm=log_norm,
        final_state=final_state,
    )
    return Result(o, state_final, log_den if log_norm else None)


def delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    g: Tensor | None = None,
    state: Sequence[Tensor] | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    form: Form = "auto",
    chunk: int = 64,
    scale: float | None = None,
    final_state: bool = False,
    check: bool | None = None,
) -> Result:
    """The delta rule, gated or not: what a key held is replaced, not added to.

        S^  = diag(exp(g_t)) S_{t-1}
        S_t = S^ + beta_t k_t^T (v_t - k_t S^)
        o_t = scale q_t S_t

    q (B,T,H,K), k (B,T,G,K) of unit norm, v (B,T,G,V), beta (B,T,G) in (0, 2), g (B,T,G) or
    (B,T,G,K): log-decay <= 0 per head or per key; o (B,T,H,V), state S (B,G,K,V). scale: 1 by
    default.
    """
    o, state_final, _ = _checked(
        check,
        torch.ops.horner.delta,
        q,
        k,
        v,
        beta,
        g,
        state,
        cu_seqlens,
        form=form,
        chunk=chunk,
        scale=scale,
        final_state=final_state,
    )
    return Result(o, state_final, None)


def scan(
    v: Tensor,
    g: Tensor,
    state: Sequence[Tensor] | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    form: Form = "auto",
    chunk: int = 64,
    final_state: bool = False,
    check: bool | None = None,
) -> Result:
    """A first-order recurrence, element by element: S6, RG-LRU.

        h_t = exp(g_t) h_{t-1} + v_t,  o_t = h_t

    v (B,T,H,V), g (B,T,H,V) or (B,T,H) with Re g <= 0, both real or both complex;
    o (B,T,H,V), state h (B,H,V).
    """
    o, state_final, _ = _checked(
        check,
        torch.ops.horner.scan,
        v,
        g,
        state,
        cu_seqlens,
        form=form,
        chunk=chunk,
        final_state=final_state,
    )
    return Result(o, state_final, None)


def form(op: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> str:
    """The form that `op` would run for these arguments: horner.form(horner.power, q, k, v)."""
    chosen: str = getattr(torch.ops.horner, f"{op.__name__}_form")(*args, **kwargs)
    return chosen
