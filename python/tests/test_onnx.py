"""Exported models give our numbers in onnx's reference evaluator, and onnx's own test cases give theirs in our ops."""

import numpy as np
import pytest
import torch
from torch import Tensor

import horner
import horner.onnx

onnx = pytest.importorskip("onnx", minversion="1.23")
pytest.importorskip("onnxscript")
from onnx.backend.test.case import node as node_cases  # noqa: E402
from onnx.backend.test.case.node import causal_conv_with_state as _more_cases  # noqa: E402, F401: makes its cases
from onnx.backend.test.case.node import linear_attention as _cases  # noqa: E402, F401: likewise
from onnx.reference import ReferenceEvaluator  # noqa: E402

B, H, G, K, V = 2, 4, 2, 8, 6
RULES = {  # name: op, shape of g after (B,T), whether there is a state before
    "linear": ("linear", None, True),
    "gated by head": ("linear", (G,), True),
    "gated by key": ("linear", (G, K), False),
    "delta": ("delta", None, False),
    "gated delta by head": ("delta", (G,), False),
    "gated delta by key": ("delta", (G, K), True),
}


class Layer(torch.nn.Module):
    """One call between other operations, which must reach opset 27 too."""

    def __init__(self, op: str, with_state: bool) -> None:
        super().__init__()
        self.op, self.with_state = op, with_state

    def forward(self, q: Tensor, k: Tensor, v: Tensor, more: list[Tensor]) -> tuple[Tensor, ...]:
        gates, state = (more[:-1], more[-1:]) if self.with_state else (more, None)
        scale = 0.3 if self.with_state else None
        y = getattr(horner, self.op)(q * 1, k, v, *gates, state=state, scale=scale, final_state=True)
        return torch.nn.functional.layer_norm(y.o, [V]), *y.state


def inputs(rule: str, T: int) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    op, gate, with_state = RULES[rule]
    torch.manual_seed(T)
    q, k, v = (torch.randn(B, T, heads, n) for heads, n in ((H, K), (G, K), (G, V)))
    more = [torch.rand(B, T, G)] if op == "delta" else []
    more += [-torch.rand(B, T, *gate)] if gate else []
    more += [torch.randn(B, G, K, V)] if with_state else []
    return q, torch.nn.functional.normalize(k, dim=-1), v, more


@pytest.mark.parametrize("rule", RULES)
def test_export(rule: str) -> None:
    op, _, with_state = RULES[rule]
    layer = Layer(op, with_state)
    example = inputs(rule, 16)
    T = {1: torch.export.Dim("T", min=1)}
    shapes = (T, T, T, [T if x.shape[1] == 16 else None for x in example[3]])
    model = horner.onnx.export(layer, example, dynamic_shapes=shapes)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 27)]
    assert sum(node.op_type == "LinearAttention" for node in model.graph.node) == 1
    names = [value.name for value in model.graph.input]
    evaluator = ReferenceEvaluator(model)
    for length in (16, 5):
        *qkv, more = inputs(rule, length)
        arrays = dict(zip(names, [x.numpy() for x in (*qkv, *more)], strict=True))
        for got, want in zip(evaluator.run(None, arrays), layer(*qkv, more), strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=2e-5, atol=2e-5)


def our_numbers(node, tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """What our op gives for the inputs of a LinearAttention node."""
    settings = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    H, G = settings["q_num_heads"], settings["kv_num_heads"]
    names = [*node.input, "", "", ""]
    q, k, v, state, g, beta = (tensors.get(name) for name in names[:6])
    K = q.shape[2] // H
    q, k, v = q.unflatten(2, (H, -1)), k.unflatten(2, (G, -1)), v.unflatten(2, (G, -1))
    if g is not None and g.shape[2] != G:
        g = g.unflatten(2, (G, K))
    more = {"scale": settings.get("scale") or K**-0.5, "final_state": True}
    more["state"] = None if state is None else [state.float()]
    if beta is None:
        y = horner.linear(q, k, v, g, **more)
    else:
        y = horner.delta(q, k, v, beta.expand(-1, -1, G), g, **more)
    return y.o.flatten(2), y.state[0]


def test_cases_of_onnx() -> None:
    """What onnx says that a node gives is what our op gives for the same tensors."""
    cases = [case for case in node_cases._NodeTestCases if case.model.graph.node[0].op_type == "LinearAttention"]
    for case in cases:
        (node,) = case.model.graph.node
        for given, wanted in case.data_sets:
            names = [name for name in node.input if name]
            tensors = dict(zip(names, [torch.tensor(x) for x in given], strict=True))
            for got, want in zip(our_numbers(node, tensors), wanted, strict=True):
                tolerance = 1e-4 if want.dtype == np.float32 else 1e-2
                np.testing.assert_allclose(
                    got.float().numpy(), want.astype(np.float32), tolerance, tolerance, err_msg=case.name
                )
    assert len(cases) >= 8


# ---- the short convolution --------------------------------------------------------------------


class Decoding(torch.nn.Module):
    """A layer that goes on from a state."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, state: list[Tensor]) -> tuple[Tensor, ...]:
        y, after = self.layer(x, state)
        return y, *after


@pytest.mark.parametrize("spec", ["gated_deltanet:heads=2", "mamba2:head=8,state=4"])
def test_layers_keep_their_convolution(spec: str) -> None:
    """One node for the convolution and one for the recurrence, from the beginning and from a state, and our numbers."""
    layer = horner.nn.Mixer(spec, 16, seed=1).eval()
    x = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        state = layer(x, [])[1]
        expected = [(layer, (x,), (layer(x),)), (Decoding(layer), (x, state), Decoding(layer)(x, state))]
    for module, args, wanted in expected:
        model = horner.onnx.export(module, args)
        for kind in ("CausalConvWithState", "LinearAttention"):
            assert sum(node.op_type == kind for node in model.graph.node) == 1, kind
        flat = [x, *(args[1] if len(args) > 1 else [])]
        arrays = {value.name: part.numpy() for value, part in zip(model.graph.input, flat, strict=True)}
        for got, want in zip(ReferenceEvaluator(model).run(None, arrays), wanted, strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("spec", ["gla:heads=2", "retnet:heads=2", "metala:heads=2", "kda:heads=2", "deltanet:heads=2"])
def test_a_layer_around_one_recurrence(spec: str) -> None:
    layer = horner.nn.Mixer(spec, 16, seed=1).eval()
    x = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(1))
    model = horner.onnx.export(layer, (x,))
    assert sum(node.op_type == "LinearAttention" for node in model.graph.node) == 1
    (y,) = ReferenceEvaluator(model).run(None, {model.graph.input[0].name: x.numpy()})
    np.testing.assert_allclose(y, layer(x).detach().numpy(), rtol=2e-5, atol=2e-5)


def test_convolutions_of_onnx() -> None:
    """What onnx says that a CausalConvWithState gives is what our op gives."""
    cases = [c for c in node_cases._NodeTestCases if c.model.graph.node[0].op_type == "CausalConvWithState"]
    for case in cases:
        (node,) = case.model.graph.node
        silu = any(onnx.helper.get_attribute_value(a) in (b"silu", b"swish") for a in node.attribute)
        for given, wanted in case.data_sets:
            named = dict(zip([name for name in node.input if name], [torch.tensor(x) for x in given], strict=True))
            x, weight, bias, tail = (named.get(name) for name in [*node.input, "", ""][:4])
            past = None if tail is None else tail.mT
            got = torch.ops.horner.short_conv(x.mT, weight[:, 0], bias, past, silu)
            for ours, want in zip(got, wanted, strict=True):
                tolerance = 1e-5 if want.dtype == np.float32 else 2e-3
                np.testing.assert_allclose(ours.mT.numpy(), want, tolerance, tolerance, err_msg=case.name)
    assert len(cases) >= 3


class Other(torch.nn.Module):
    def __init__(self, call) -> None:
        super().__init__()
        self.call = call

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.call(q, k, v).o


@pytest.mark.parametrize(
    "call, line",
    [
        (lambda q, k, v: horner.linear(q, k, v, norm="sum"), "has no normaliser"),
        (lambda q, k, v: horner.linear(q, k, v, causal=False), "has no second_direction"),
        (lambda q, k, v: horner.power(q, k, v), "no operator for horner.power"),
    ],
)
def test_refused(call, line: str) -> None:
    q, k, v = torch.randn(3, 1, 5, 2, 4).unbind()
    with pytest.raises(ValueError, match=line) as error:
        horner.onnx.export(Other(call), (q, k, v))
    assert "\n" not in str(error.value)
