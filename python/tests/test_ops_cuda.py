"""The ops on a GPU, where kernels run: PyTorch's own checks, compile and autocast on CUDA tensors."""

from typing import Any

import pytest
import torch
from torch import Tensor

import horner
from samples import OPS, tensors

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

B, T, H, K, V = 2, 192, 4, 64, 64
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {  # name -> (op, decay, options)
    "attention": ("attention", "", {}),
    "power": ("power", "", {"order": 2}),
    "power-decay": ("power", "head", {"order": 2}),
    "power-small": ("power", "", {"order": 2, "final_state": True}),
    "power-wide": ("power", "", {"order": 2, "final_state": True}),
    "linear": ("linear", "", {}),
    "linear-head": ("linear", "head", {}),
    "linear-key": ("linear", "key", {}),
    "linear-sum": ("linear", "", {"norm": "sum"}),
    "linear-sum-head": ("linear", "head", {"norm": "sum"}),
    "delta": ("delta", "", {}),
    "delta-head": ("delta", "head", {}),
    "delta-key": ("delta", "key", {}),
    "scan": ("scan", "", {}),
}
every_case = pytest.mark.parametrize("case", CASES)


def inputs_of(case: str, dtype: torch.dtype, grad: bool = True) -> dict[str, Tensor]:
    op, decay, options = CASES[case]
    width = 16 if case == "power-small" else K
    random = torch.Generator("cuda").manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, device="cuda", dtype=torch.float32).to(dtype)

    if op == "scan":
        x = {"v": normal(B, T, H, V), "g": -normal(B, T, H, V).abs()}
    else:
        x = {"q": normal(B, T, H, width), "k": normal(B, T, H, width), "v": normal(B, T, H, V)}
        x["k"] = torch.nn.functional.normalize(x["k"], dim=-1)
        if options.get("norm") == "sum":
            x["q"], x["k"] = x["q"].abs(), x["k"].abs()
    if op == "delta":
        x["beta"] = normal(B, T, H).float().sigmoid()
    if decay:
        x["g"] = -normal(B, T, H, *((width,) if decay == "key" else ())).float().abs() / 8
    return {name: value.detach().requires_grad_(grad) for name, value in x.items()}


def gradients(result: horner.Result, inputs: dict[str, Tensor]) -> list[Tensor]:
    total = sum((x.float() * torch.linspace(-1, 2, x.numel(), device="cuda").view(x.shape)).sum()
                for x in tensors(result))
    return list(torch.autograd.grad(total, list(inputs.values())))


@every_case
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def test_opcheck(case: str, dtype: torch.dtype) -> None:
    op, _, options = CASES[case]
    overload = getattr(torch.ops.horner, op).default
    # Two runs give the same bits, but a compiled backward may add gradients in another order.
    torch.library.opcheck(overload, (), inputs_of(case, dtype) | options, rtol=2e-2, atol=2e-2)


@every_case
def test_compiled_is_eager(case: str) -> None:
    op, _, options = CASES[case]
    eager, inputs = inputs_of(case, torch.bfloat16), inputs_of(case, torch.bfloat16)
    expected = OPS[op](**eager, **options)
    actual = torch.compile(OPS[op], fullgraph=True)(**inputs, **options)
    assert all(map(torch.equal, tensors(actual), tensors(expected)))
    assert all(map(torch.equal, gradients(actual, inputs), gradients(expected, eager)))


@every_case
def test_near_the_cpu(case: str) -> None:
    op, _, options = CASES[case]
    inputs = inputs_of(case, torch.bfloat16)
    wide = {name: x.detach().double().cpu().requires_grad_() for name, x in inputs.items()}
    actual, exact = OPS[op](**inputs, **options), OPS[op](**wide, **options)
    pairs = list(zip(tensors(actual), tensors(exact), strict=True))
    weight = torch.linspace(-1, 2, exact.o.numel(), dtype=torch.float64).view(exact.o.shape)
    (actual.o.float() * weight.to("cuda", torch.float32)).sum().backward()  # type: ignore[no-untyped-call]
    (exact.o * weight).sum().backward()
    pairs += [(inputs[name].grad, wide[name].grad) for name in inputs]
    for x, y in pairs:
        error = (x.double().cpu() - y).norm() / y.norm()
        assert error < 2e-2, f"relative error {error:.1e}"


@every_case
def test_autocast(case: str) -> None:
    op, _, options = CASES[case]
    inputs = inputs_of(case, torch.float32, grad=False)
    low = {n: x.bfloat16() if n in ("q", "k", "v") else x for n, x in inputs.items()}
    with torch.autocast("cuda", dtype=torch.bfloat16):
        actual = OPS[op](**inputs, **options)
    assert actual.o.dtype == torch.bfloat16
    assert torch.equal(actual.o, OPS[op](**low, **options).o)
