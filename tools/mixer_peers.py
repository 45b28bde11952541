"""The mixers as other libraries compute them, for mixer_goldens.py."""

import importlib.metadata
import importlib.util
from typing import Any, Callable

import numpy as np

from mixer_equations import (
    Array,
    B,
    Case,
    D,
    Equation,
    T,
    Weights,
    by_equations,
    heads,
    sigmoid,
    silu,
    softplus,
)

# ---- layers of transformers ---------------------------------------------------------------------


def transformers() -> list[Case]:
    import torch
    import transformers as hf
    from transformers.models.llama import modeling_llama as llama
    from transformers.models.mamba import modeling_mamba as mamba
    from transformers.models.mamba2 import modeling_mamba2 as mamba2
    from transformers.models.qwen3 import modeling_qwen3 as qwen3
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next
    from transformers.models.recurrent_gemma import modeling_recurrent_gemma as gemma
    from transformers.models.xlstm import modeling_xlstm as xlstm

    torch.manual_seed(0)
    cases: list[Case] = []
    x = torch.randn(B, T, D)

    def fill(layer: Any) -> dict[str, Any]:
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.4)
        return dict(layer.named_parameters())

    def add(mixer: str, options: dict[str, Any], y: Any, weights: dict[str, Any]) -> None:
        tensors = {"x": x, "y": y, **weights}
        arrays = {key: value.detach().contiguous().numpy() for key, value in tensors.items()}
        cases.append((f"{len(cases):02d}_{mixer}", mixer, options, 1e-5, arrays))

    position = torch.arange(T)[None]
    causal = torch.full((T, T), float("-inf")).triu(1)
    common = {"hidden_size": D, "num_attention_heads": 4, "head_dim": 4, "num_key_value_heads": 2}
    for module, name, norm in ((llama, "Llama", False), (qwen3, "Qwen3", True)):
        config = getattr(hf, name + "Config")(**common, attn_implementation="eager")
        attention = getattr(module, name + "Attention")(config, 0)
        w = fill(attention)
        turn = getattr(module, name + "RotaryEmbedding")(config)(x, position)
        options = {"groups": 2, "qk_norm": norm}
        weights = {f"{n}_weight": w[f"{n}_proj.weight"] for n in "qkv"}
        weights["out_weight"] = w["o_proj.weight"]
        if norm:
            weights |= {f"{n}_norm_weight": w[f"{n}_norm.weight"] for n in "qk"}
        add("softmax", options, attention(x, turn, causal[None, None])[0], weights)
        if not norm:
            near = causal + torch.full((T, T), float("-inf")).tril(-4)
            del options["qk_norm"]
            y = attention(x, turn, near[None, None])[0]
            add("window", {**options, "window": 4}, y, weights)

    config = hf.MambaConfig(hidden_size=D, state_size=4, time_step_rank=3, num_hidden_layers=1)
    layer = mamba.MambaMixer(config, 0)
    w = fill(layer)
    add("s6", {"state": 4, "rank": 3}, layer(x), {
        "in_weight": w["in_proj.weight"], "conv_weight": w["conv1d.weight"].squeeze(1),
        "conv_bias": w["conv1d.bias"], "x_weight": w["x_proj.weight"], "A_log": w["A_log"],
        "step_weight": w["dt_proj.weight"], "step_bias": w["dt_proj.bias"], "skip": w["D"],
        "out_weight": w["out_proj.weight"]})  # fmt: skip

    config = hf.Mamba2Config(hidden_size=D, state_size=6, num_heads=4, head_dim=8, n_groups=2,
                             expand=2, num_hidden_layers=1, chunk_size=4)  # fmt: skip
    layer = mamba2.Mamba2Mixer(config, 0)
    w = fill(layer)
    add("mamba2", {"state": 6, "head": 8, "groups": 2}, layer(x), {
        "in_weight": w["in_proj.weight"], "conv_weight": w["conv1d.weight"].squeeze(1),
        "conv_bias": w["conv1d.bias"], "A_log": w["A_log"], "step_bias": w["dt_bias"],
        "skip": w["D"], "norm_weight": w["norm.weight"],
        "out_weight": w["out_proj.weight"]})  # fmt: skip

    config = hf.xLSTMConfig(hidden_size=D, num_heads=2, chunk_size=3, weight_mode="single",
                            autocast_kernel_dtype="float32", mode="train")  # fmt: skip
    layer = xlstm.xLSTMLayer(config)
    w = fill(layer)
    names = {"q": "q", "k": "k", "v": "v", "ogate_preact": "output_gate", "out_proj": "out",
             "igate_preact": "input_gate", "fgate_preact": "forget_gate"}  # fmt: skip
    weights = {f"{ours}_weight": w[f"{theirs}.weight"] for theirs, ours in names.items()}
    weights["input_gate_bias"] = w["igate_preact.bias"]
    weights["forget_gate_bias"] = w["fgate_preact.bias"]
    weights["norm_weight"] = w["multihead_norm.weight"].reshape(2, 8)
    add("mlstm", {"heads": 2}, layer(x)[0], weights)

    config = hf.RecurrentGemmaConfig(hidden_size=D, lru_width=D, num_attention_heads=4)
    layer = gemma.RecurrentGemmaRecurrentBlock(config, 0)
    w = fill(layer)
    add("rg_lru", {}, layer(x, position, None, use_cache=False)[0], {
        "gate_weight": w["linear_y.weight"], "gate_bias": w["linear_y.bias"],
        "in_weight": w["linear_x.weight"], "in_bias": w["linear_x.bias"],
        "out_weight": w["linear_out.weight"], "out_bias": w["linear_out.bias"],
        "conv_weight": w["conv_1d.weight"].squeeze(1), "conv_bias": w["conv_1d.bias"],
        "Lambda": w["rg_lru.recurrent_param"].reshape(4, 4),
        "recurrence_weight": w["rg_lru.recurrent_gate_weight"],
        "recurrence_bias": w["rg_lru.recurrent_gate_bias"],
        "input_weight": w["rg_lru.input_gate_weight"],
        "input_bias": w["rg_lru.input_gate_bias"]})  # fmt: skip

    config = hf.Qwen3NextConfig(hidden_size=D, linear_num_value_heads=4, linear_num_key_heads=2,
                                linear_key_head_dim=8, linear_value_head_dim=4, num_hidden_layers=1,
                                layer_types=["linear_attention"], rms_norm_eps=1e-6)  # fmt: skip
    layer = qwen3_next.Qwen3NextGatedDeltaNet(config, 0)
    w = fill(layer)
    qkvz = w["in_proj_qkvz.weight"].reshape(2, 32, D).split([8, 8, 8, 8], 1)
    ba = w["in_proj_ba.weight"].reshape(2, 4, D).split([2, 2], 1)
    weights = {f"{n}_weight": part.reshape(-1, D) for n, part in zip(("q", "k", "v", "gate"), qkvz)}
    weights |= {f"{n}_weight": part.reshape(-1, D) for n, part in zip(("beta", "decay"), ba)}
    options = {"heads": 2, "value_heads": 4, "expand_v": 1, "norm_eps": 1e-6}
    add("gated_deltanet", options, layer(x), {
        **weights, "conv_weight": w["conv1d.weight"].squeeze(1), "A_log": w["A_log"],
        "step_bias": w["dt_bias"], "norm_weight": w["norm.weight"],
        "out_weight": w["out_proj.weight"]})  # fmt: skip
    return cases


# ---- naive functions of flash-linear-attention --------------------------------------------------


def naive(op: str, name: str) -> Callable[..., Any]:
    """The function `name` of fla/ops/`op`/naive.py on fp32 arrays."""
    import torch

    path = importlib.metadata.distribution("fla-core").locate_file(f"fla/ops/{op}/naive.py")
    spec = importlib.util.spec_from_file_location(f"naive_{op}", str(path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def call(*inputs: Array) -> Array:
        y = getattr(module, name)(*(torch.tensor(x, dtype=torch.float32) for x in inputs))
        return np.asarray(y[0] if isinstance(y, tuple) else y)

    return call


def by_head(x: Array, p: Weights, H: int, **width: int) -> list[Array]:
    """x W for each name, as (1,H,T,width): what most of the naive functions take."""
    return [np.stack(heads(x @ p(f"{n}_weight", w, D).T, H))[None] for n, w in width.items()]


def joined(o: Array) -> Array:
    return o[0].transpose(1, 0, 2).reshape(o.shape[2], -1)  # (1,H,T,V) -> (T,H V)


def fla_retnet(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    q, k, v = by_head(x, p, 4, q=D, k=D, v=2 * D)
    y = naive("retention", "naive_retention")(q, k, v)
    y = joined((y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5))
    return (silu(x @ p("gate_weight", 2 * D, D).T) * y) @ p("out_weight", D, 2 * D).T


def fla_gla(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    H, V = o["heads"], D // o["heads"]
    q, k, v = by_head(x, p, H, q=D // 2, k=D // 2, v=D)
    l = x @ p("decay_down_weight", 16, D).T @ p("decay_up_weight", D // 2, 16).T
    g = -softplus(-np.stack(heads(l + p("decay_up_bias", D // 2), H)))[None] / 16
    qkvg = (z.transpose(0, 2, 1, 3) for z in (q, k, v, g))  # this one takes (1,T,H,.)
    y = naive("gla", "naive_recurrent_gla")(*qkvg).transpose(0, 2, 1, 3)
    y = y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5) * p("norm_weight", V)
    gate = silu(x @ p("gate_weight", D, D).T + p("gate_bias", D))
    return (gate * joined(y)) @ p("out_weight", D, D).T


def fla_based(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    y = naive("based", "naive_parallel_based")(*by_head(x, p, 4, q=D, k=D, v=D))
    return joined(y) @ p("out_weight", D, D).T


def fla_deltanet(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    q, k, v = (silu(z) for z in by_head(x, p, 4, q=D, k=D, v=D))
    q, k = (z / np.sqrt((z * z).sum(-1, keepdims=True) + 1e-6) for z in (q, k))
    beta = sigmoid(x @ p("beta_weight", 4, D).T).T[None]
    y = naive("delta_rule", "delta_rule_recurrence")(q, k, v, beta)
    y = y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5) * p("norm_weight", 4)
    return joined(y) @ p("out_weight", D, D).T


def fla() -> list[Case]:
    none = {"position": {"kind": "none"}}
    rows: list[tuple[str, Equation, dict[str, Any]]] = [
        ("retnet", fla_retnet, none),
        ("gla", fla_gla, {"heads": 2}),
        ("taylor", fla_based, none),
        ("deltanet", fla_deltanet, {"conv": 0}),
    ]
    return by_equations(rows, 1e-5)
