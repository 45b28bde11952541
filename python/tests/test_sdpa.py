"""horner.sdpa in the place of torch's scaled_dot_product_attention."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as torch_sdpa

import horner
import horner._sdpa

B, H, G, K, V = 2, 4, 2, 8, 6


def qkv(Tq: int = 7, Tk: int = 7, heads: int = G) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    shapes = (B, H, Tq, K), (B, heads, Tk, K), (B, heads, Tk, V)
    q, k, v = (torch.randn(s, dtype=torch.float64, generator=random) for s in shapes)
    return q, k, v


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_softmax_is_torchs(causal: bool, scale: float | None) -> None:
    q, k, v = qkv()
    close(
        horner.sdpa(q, k, v, is_causal=causal, scale=scale),
        torch_sdpa(q, k, v, is_causal=causal, scale=scale, enable_gqa=True),
    )


@pytest.mark.parametrize("Tq, Tk", [(3, 7), (1, 7), (7, 3), (1, 1)])
def test_cross_attention(Tq: int, Tk: int) -> None:
    q, k, v = qkv(Tq, Tk)
    close(horner.sdpa(q, k, v), torch_sdpa(q, k, v, enable_gqa=True))


@pytest.mark.parametrize("few", [0, 16])  # for taylor: by the recurrence, by all pairs
@pytest.mark.parametrize("kind", ["softmax", "window:window=3", "window:window=3,sinks=2", "taylor:order=4"])
def test_the_last_queries_are_those_of_the_whole(kind: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horner._sdpa, "FEW", few)
    q, k, v = qkv()
    whole = horner.sdpa(q, k, v, is_causal=True, kind=kind)
    for n in (1, 3, 6):
        close(horner.sdpa(q[:, :, -n:], k, v, is_causal=True, kind=kind), whole[:, :, -n:])


@pytest.mark.parametrize("kind, most", [("window:window=8,sinks=2", 0.1), ("taylor:order=2", 1.5)])
def test_one_query_does_not_cost_a_query_for_every_key(kind: str, most: float) -> None:
    """Nothing is as large as all keys with a query each; a window reads its own keys alone."""
    q, k, v = (torch.randn(1, 2, T, 8) for T in (1, 4096, 4096))
    with torch.profiler.profile(profile_memory=True) as profile:
        horner.sdpa(q, k, v, is_causal=True, kind=kind)
    assert max(event.self_cpu_memory_usage for event in profile.events()) < most * k.nbytes


def test_taylor_is_the_cut_series() -> None:
    q, k, v = qkv(heads=H)
    x = q @ k.mT / math.sqrt(K)
    w = sum(x**n / math.factorial(n) for n in range(5))
    close(horner.sdpa(q, k, v, kind="taylor:order=4"), w / w.sum(-1, keepdim=True) @ v)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["softmax", "taylor:order=2", "window:window=3"])
@pytest.mark.parametrize("left", [True, False])
def test_padding(causal: bool, kind: str, left: bool) -> None:
    q, k, v = qkv()
    mask = torch.ones(B, 7, dtype=torch.bool)
    mask[1, slice(0, 3) if left else slice(4, 7)] = False
    own = mask[1].nonzero()[:, 0]
    for given in (mask, mask[:, None, None]):
        o = horner.sdpa(q, k, v, given, is_causal=causal, kind=kind)
        close(o[:1], horner.sdpa(q[:1], k[:1], v[:1], is_causal=causal, kind=kind))
        alone = [x[1:, :, own] for x in (q, k, v)]
        close(o[1:, :, own], horner.sdpa(*alone, is_causal=causal, kind=kind))
        assert not o[1, :, ~mask[1]].any()


def test_padding_of_keys_alone() -> None:
    q, k, v = qkv(3, 7)
    mask = torch.ones(B, 7, dtype=torch.bool)
    mask[1, 5:] = False
    close(horner.sdpa(q, k, v, mask), torch_sdpa(q, k, v, mask[:, None, None], enable_gqa=True))


@pytest.mark.parametrize("kind", ["softmax", "taylor:order=2", "window:window=3"])
@pytest.mark.parametrize("hidden", [slice(0, 2), slice(5, 7), slice(6, 7)])
def test_the_last_queries_with_padding(kind: str, hidden: slice) -> None:
    """Queries 4 .. 6 of 7 tokens are those of the whole, also where the padding is among them."""
    q, k, v = qkv()
    mask = torch.ones(B, 7, dtype=torch.bool)
    mask[1, hidden] = False
    whole = horner.sdpa(q, k, v, mask, is_causal=True, kind=kind)
    close(horner.sdpa(q[:, :, 4:], k, v, mask, is_causal=True, kind=kind), whole[:, :, 4:])
    mask[0] = mask[1]  # the same for all rows
    whole = horner.sdpa(q, k, v, mask, is_causal=True, kind=kind)
    close(horner.sdpa(q[:, :, 4:], k, v, mask, is_causal=True, kind=kind), whole[:, :, 4:])
    mask[1] = False
    assert not horner.sdpa(q[:, :, 4:], k, v, mask, is_causal=True, kind=kind)[1].any()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["softmax", "taylor:order=2", "window:window=3"])
def test_packed_sequences(causal: bool, kind: str) -> None:
    q, k, v = qkv()
    o = horner.sdpa(q, k, v, is_causal=causal, kind=kind, cu_seqlens=torch.tensor([0, 3, 7, 14]))
    for row, begin, end in ((0, 0, 3), (0, 3, 7), (1, 0, 7)):
        alone = [x[row : row + 1, :, begin:end] for x in (q, k, v)]
        close(o[row : row + 1, :, begin:end], horner.sdpa(*alone, is_causal=causal, kind=kind))


def test_gradients() -> None:
    q, k, v = (x.requires_grad_() for x in qkv(3, 5))
    assert torch.autograd.gradcheck(lambda *x: horner.sdpa(*x, is_causal=True), (q, k, v), fast_mode=True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dropout_p": 0.1}, "no dropout"),
        ({"kind": "gla"}, "kind must be one of softmax, window, taylor"),
        ({"kind": "window"}, "window needs its width"),
        ({"kind": "taylor:orders=2"}, "taylor takes order, got 'orders=2'"),
        ({"kind": "taylor:order=3"}, "taylor needs an even order.* got 3"),
        ({"kind": "taylor:order=2,order=4"}, "taylor takes order, got 'order=4'"),
        ({"attn_mask": torch.zeros(7, 7)}, "must be boolean"),
        ({"attn_mask": torch.ones(7, 7, dtype=torch.bool)}, r"must be \(B,Tk\) = \(2,7\)"),
        ({"attn_mask": torch.ones(2, 7, dtype=torch.bool), "cu_seqlens": torch.tensor([0, 14])}, "takes no attn_mask"),
    ],
)
def test_mistakes_are_one_line(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says) as error:
        horner.sdpa(*qkv(), **options)
    assert "\n" not in str(error.value)


def test_a_mask_with_two_meanings_is_refused() -> None:
    """With as many rows as queries, (B,Tk) is also the shape of torch's mask (Tq,Tk)."""
    q, k, v = qkv(B, 7)
    with pytest.raises(ValueError, match=r"attn_mask \(2, 7\) may mean \(B,Tk\) or torch's \(Tq,Tk\): give \(B,1,1,Tk\)"):
        horner.sdpa(q, k, v, torch.ones(B, 7, dtype=torch.bool))
    mask = torch.tensor([[True] * 7, [False] * 2 + [True] * 5])[:, None, None]
    close(horner.sdpa(q, k, v, mask), torch_sdpa(q, k, v, mask, enable_gqa=True))


def test_there_must_be_a_key() -> None:
    q, k, v = qkv(7, 0)
    with pytest.raises(ValueError, match="there must be a key, got Tk = 0"):
        horner.sdpa(q, k, v)
