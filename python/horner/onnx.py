"""Models with `horner.linear`, `horner.delta` or layers on them as ONNX files: each call becomes one LinearAttention of opset 27.

    model = horner.onnx.export(module, (q, k, v), "model.onnx")

    call                              update_rule     decay
    linear(q, k, v)                   linear          none
    linear(q, k, v, g)                gated           g (B,T,G) per head, or (B,T,G,K) per key
    delta(q, k, v, beta)              delta           none
    delta(q, k, v, beta, g)           gated_delta     g, likewise

The short convolution of a layer becomes one CausalConvWithState.
Needs the packages onnx (1.23 or later) and onnxscript.
"""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

OPSET = 27
_DOMAIN = "horner.opset27"  # of the nodes until the rest of the model has reached this opset


def _refuse(op: str, **settings: object) -> None:
    for name, given in settings.items():
        if given:
            raise ValueError(f"horner.onnx: LinearAttention has no {name}, which this {op} uses")


def _linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor | None,
    state: list[Tensor] | None,
    scale: float | None,
    chunk: int,
) -> tuple[Tensor, list[Tensor], Tensor]:
    """The node, between layouts (B,T,H,K) and (B,T,H K)."""
    (B, T, H, K), G, V = q.shape, k.shape[2], v.shape[3]
    given = [q, k, v, *(x for x in (g, beta) if x is not None)]
    dtype = q.dtype if all(x.dtype == q.dtype for x in given) else torch.float32

    def flat(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.to(dtype).flatten(2)

    past = state[0] if state else None
    if past is None and dtype != torch.float32:  # the node's state has the dtype of the past one
        past = q.new_zeros((B, G, K, V), dtype=torch.float32)
    rules = ("linear", "gated") if beta is None else ("delta", "gated_delta")
    o, after = torch.onnx.ops.symbolic_multi_out(
        f"{_DOMAIN}::LinearAttention",
        [flat(q), flat(k), flat(v), past, flat(g.reshape(B, T, -1) if g is not None else None), flat(beta)],
        {
            "q_num_heads": H,
            "kv_num_heads": G,
            "update_rule": rules[g is not None],
            "scale": 1.0 if scale is None else scale,
            "chunk_size": chunk,
        },
        dtypes=[dtype, torch.float32],
        shapes=[[B, T, H * V], [B, G, K, V]],
        version=1,
    )
    return o.reshape(B, T, H, V).to(v.dtype), [after], q.new_empty([0])


def _linear(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    i: Tensor | None = None,
    state: list[Tensor] | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    form: str = "auto",
    chunk: int = 64,
    scale: float | None = None,
    causal: bool = True,
    norm: str = "none",
    eps: float = 0,
    log_norm: bool = False,
    final_state: bool = False,
) -> tuple[Tensor, list[Tensor], Tensor]:
    packed, gate = cu_seqlens is not None, i is not None
    _refuse("linear", input_gate=gate, packed_batch=packed, second_direction=not causal)
    _refuse("linear", normaliser=norm != "none" or log_norm)
    return _linear_attention(q, k, v, g, None, state, scale, chunk)


def _delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    g: Tensor | None = None,
    state: list[Tensor] | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    form: str = "auto",
    chunk: int = 64,
    scale: float | None = None,
    final_state: bool = False,
) -> tuple[Tensor, list[Tensor], Tensor]:
    _refuse("delta", packed_batch=cu_seqlens is not None)
    return _linear_attention(q, k, v, g, beta, state, scale, chunk)


def _short_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, tail: Tensor | None = None, silu: bool = False
) -> tuple[Tensor, Tensor]:
    """The node, between layouts (B,T,C) and (B,C,T)."""
    (B, T, C), W = x.shape, weight.shape[1]
    y, after = torch.onnx.ops.symbolic_multi_out(
        f"{_DOMAIN}::CausalConvWithState",
        [
            x.mT,
            weight.to(x.dtype).unsqueeze(1),
            None if bias is None else bias.to(x.dtype),
            None if tail is None else tail.to(x.dtype).mT,
        ],
        {"activation": "silu" if silu else "none"},
        dtypes=[x.dtype, x.dtype],
        shapes=[[B, C, T], [B, C, W - 1]],
        version=1,
    )
    return y.mT, after.mT


def _empty(size: list[int], physical_layout: list[int], *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """Memory that is written next; ONNX has no operator without values."""
    return torch.zeros(size, dtype=dtype)


def export(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    file: str | None = None,
    *,
    dynamic_shapes: Any = None,
    verbose: bool | None = False,
) -> Any:
    """The module as an onnx.ModelProto of opset 27, which is also written to `file` if there is one.

    args: inputs for one forward, as torch.export takes them. dynamic_shapes: likewise; without it every size is fixed.
    """
    try:
        onnx: Any = import_module("onnx")
        version_converter: Any = import_module("onnx.version_converter")
        import_module("onnxscript")
    except ImportError as error:
        raise ImportError("horner.onnx needs onnx and onnxscript: pip install onnx onnxscript") from error
    if onnx.defs.onnx_opset_version() < OPSET:
        raise ImportError(f"horner.onnx needs onnx 1.23 or later for opset {OPSET}, not {onnx.__version__}")
    table: Any = torch.export.default_decompositions()
    table[torch.ops.horner.linear.default] = _linear
    table[torch.ops.horner.delta.default] = _delta
    table[torch.ops.horner.short_conv.default] = _short_conv
    table[torch.ops.aten.empty_permuted.default] = _empty
    try:
        program = torch.export.export(module, args, dynamic_shapes=dynamic_shapes).run_decompositions(table)
    except ValueError as error:  # torch adds where in the graph
        line, _, more = str(error).partition("\n")
        if more and line.startswith("horner.onnx"):
            raise ValueError(line) from None
        raise
    for node in program.graph.nodes:
        if getattr(node.target, "namespace", "") == "horner":
            raise ValueError(f"horner.onnx: ONNX has no operator for {node.target}")
    exported: Any = torch.onnx.export(program, dynamo=True, verbose=verbose)
    # torch writes opset 18, and knows no node of opset 27: ours keep a domain of their own until the others are converted.
    model = version_converter.convert_version(exported.model_proto, OPSET)
    for node in model.graph.node:
        if node.domain == _DOMAIN:
            node.domain = ""
    kept = [opset for opset in model.opset_import if opset.domain != _DOMAIN]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    onnx.checker.check_model(model, full_check=True)
    if file is not None:
        onnx.save(model, file)
    return model
