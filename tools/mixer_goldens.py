"""Golden outputs of the mixers by other hands.

    python tools/mixer_goldens.py equations       the papers' equations in fp64, numpy loops
    python tools/mixer_goldens.py transformers    layers of transformers 5.22.2 in fp32

Each writes src/mixers/goldens/<name>.safetensors: for every case the input <case>.x, the output
<case>.y and every parameter as <case>.<parameter>; its metadata maps <case> to {"mixer", "D",
"options", "tolerance"}. The second needs torch and transformers; the tests need the files alone.

In the equations a function sees one sequence x (T,D) and draws its weights as p(name, shape...).
"""

import json
import sys
import zlib
from pathlib import Path
from typing import Any, Callable

import numpy as np
from safetensors.numpy import save_file

FOLDER = Path(__file__).resolve().parent.parent / "src/mixers/goldens"
B, T, D = 2, 9, 16

Array = np.ndarray
Case = tuple[str, str, dict[str, Any], float, dict[str, Array]]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softplus(x: Array) -> Array:
    return np.log1p(np.exp(x))


def layer(x: Array, eps: float) -> Array:
    return (x - x.mean()) / np.sqrt(x.var() + eps)


def rms(x: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean() + eps)


class Weights:
    """Weights by name, drawn once a case: the same for every sequence of the batch."""

    def __init__(self, case: str) -> None:
        self.random = np.random.default_rng(zlib.crc32(case.encode()))
        self.all: dict[str, Array] = {}

    def __call__(self, name: str, *shape: int) -> Array:
        if name not in self.all:
            self.all[name] = self.random.normal(size=shape) * 0.4
        return self.all[name]


def conv(x: Array, w: Array) -> Array:
    """Depth-wise causal convolution: w[:, -1] meets the current token."""
    y = np.zeros_like(x)
    for t in range(len(x)):
        for j in range(w.shape[1]):
            s = t - w.shape[1] + 1 + j
            if s >= 0:
                y[t] += w[:, j] * x[s]
    return y


def rope(x: Array, base: float = 10000.0) -> Array:
    """(T,K), pairs (j, j + K/2) turned by t base^{-2j/K}."""
    P = x.shape[1] // 2
    y = np.zeros_like(x)
    for t in range(len(x)):
        for j in range(P):
            z = (x[t, j] + 1j * x[t, j + P]) * np.exp(1j * t * base ** (-2 * j / x.shape[1]))
            y[t, j], y[t, j + P] = z.real, z.imag
    return y


def heads(x: Array, H: int) -> list[Array]:
    return [np.ascontiguousarray(part) for part in np.split(x, H, axis=1)]


# ---- the papers' equations ----------------------------------------------------------------------


def taylor(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2507.23632: o_t = sum_s P_N(x_ts) v_s over its normaliser, all pairs."""
    H = 4
    q, k, v = (heads(x @ p(f"{n}_weight", D, D).T, H) for n in "qkv")
    out = np.zeros((len(x), D))
    for h in range(H):
        a, b = rope(q[h]), rope(k[h])
        g = np.zeros(len(x))
        if o.get("decay") == "softplus":
            g = -softplus(x @ p("decay_weight", H, D)[h])
        for t in range(len(x)):
            y, den = 0, 0
            for s in range(t + 1):
                u, weight, term = a[t] @ b[s] / np.sqrt(4), 0.0, 1.0
                for n in range(o.get("order", 2) + 1):
                    weight, term = weight + term, term * u / (n + 1)
                weight *= np.exp(g[s + 1 : t + 1].sum())
                y, den = y + weight * v[h][s], den + weight
            if o.get("norm", "sum") == "sum":
                y = y / den
            elif o["norm"] == "l2":
                y = y / np.linalg.norm(y)
            elif o["norm"] == "clampden":
                y = y / max(den, 1)
            elif o["norm"] == "gate":
                gate = x[t] @ p("norm_gate_weight", H, D)[h] + p("norm_gate_bias", H)[h]
                y = y * sigmoid(gate) / (t + 1)
            out[t, 4 * h : 4 * h + 4] = y
    return out @ p("out_weight", D, D).T


def linear(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2006.16236, elu + 1; with power n the n-th power of (phi.phi)/sqrt(K)."""
    H, n = 4, o.get("power", 1)
    q, k, v = (heads(x @ p(f"{m}_weight", D, D).T, H) for m in "qkv")
    out = np.zeros((len(x), D))
    for h in range(H):
        a, b = (np.where(z[h] > 0, z[h] + 1, np.exp(np.minimum(z[h], 0))) for z in (q, k))
        for t in range(len(x)):
            w = [(a[t] @ b[s] / (1 if n == 1 else 2)) ** n for s in range(t + 1)]
            out[t, 4 * h : 4 * h + 4] = sum(w[s] * v[h][s] for s in range(t + 1)) / sum(w)
    return out @ p("out_weight", D, D).T


def retnet(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2307.08621, the recurrence."""
    H, V = 4, 8
    q, k = (heads(x @ p(f"{n}_weight", D, D).T, H) for n in "qk")
    v = heads(x @ p("v_weight", H * V, D).T, H)
    out = np.zeros((len(x), H * V))
    for h in range(H):
        S, a, b = np.zeros((4, V)), rope(q[h]), rope(k[h]) / 2
        for t in range(len(x)):
            S = (1 - 2.0 ** (-5 - h)) * S + np.outer(b[t], v[h][t])
            out[t, V * h : V * h + V] = layer(a[t] @ S, 1e-5)
    return (silu(x @ p("gate_weight", H * V, D).T) * out) @ p("out_weight", D, H * V).T


def gla(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2312.06635, the recurrence."""
    H, K, V = 2, 4, 8
    q, k = (heads(x @ p(f"{n}_weight", H * K, D).T, H) for n in "qk")
    v = heads(x @ p("v_weight", H * V, D).T, H)
    l = x @ p("decay_down_weight", 16, D).T @ p("decay_up_weight", H * K, 16).T
    a = heads(sigmoid(l + p("decay_up_bias", H * K)) ** (1 / 16), H)
    out = np.zeros((len(x), H * V))
    for h in range(H):
        S = np.zeros((K, V))
        for t in range(len(x)):
            S = a[h][t][:, None] * S + np.outer(k[h][t], v[h][t])
            out[t, V * h : V * h + V] = rms(q[h][t] @ S / 2, 1e-5) * p("norm_weight", V)
    gate = silu(x @ p("gate_weight", H * V, D).T + p("gate_bias", H * V))
    return (gate * out) @ p("out_weight", D, H * V).T


def deltanet(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2406.06484, the recurrence."""
    H, K = 4, 4
    qkv = np.concatenate([x @ p(f"{n}_weight", D, D).T for n in "qkv"], axis=1)
    qkv = silu(conv(qkv, p("conv_weight", 3 * D, 4)))
    q, k, v = (heads(part, H) for part in np.split(qkv, 3, axis=1))
    beta = sigmoid(x @ p("beta_weight", H, D).T) * (2 if o.get("negative") else 1)
    out = np.zeros((len(x), D))
    for h in range(H):
        S = np.zeros((K, K))
        for t in range(len(x)):
            a, b = (z[h][t] / np.sqrt(z[h][t] @ z[h][t] + 1e-6) for z in (q, k))
            S = S - beta[t, h] * np.outer(b, b @ S) + beta[t, h] * np.outer(b, v[h][t])
            out[t, K * h : K * h + K] = rms(a @ S / 2, 1e-5) * p("norm_weight", K)
    return out @ p("out_weight", D, D).T


def metala(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2411.10741, the authors' layer."""
    H, K, V = 2, 4, 8
    x = silu(conv(x, p("conv_weight", D, 4)))
    q, l = (heads(x @ p(f"{n}_weight", H * K, D).T, H) for n in ("q", "decay"))
    v = heads(x @ p("v_weight", D, D).T, H)
    out = np.zeros((len(x), D))
    for h in range(H):
        S = np.zeros((K, V))
        for t in range(len(x)):
            a = sigmoid(l[h][t]) ** (1 / 16)
            S = a[:, None] * S + np.outer(1 - a, v[h][t])
            w = (q[h][t] * (1 - a)) @ p("augment", H, K)[h]
            y = q[h][t] @ S / 2 + sigmoid(w * v[h][t])
            out[t, V * h : V * h + V] = layer(y, 1e-5)
    gate = silu(x @ p("gate_weight", D, D).T + p("gate_bias", D))
    return (gate * out) @ p("out_weight", D, D).T


def luna(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2512.08061, separate channel functions, all pairs."""
    H, M, R, E = 4, 16, 4, 8
    q, k, v = (heads(x @ p(f"{n}_weight", D, D).T, H) for n in "qkv")
    w, b = p("map_w", M, 4), p("map_b", M)
    fc1, bias1 = p("map_fc1", R, E), p("map_bias1", R, E)
    fc2, bias2 = p("map_fc2", R, E), p("map_bias2", R)

    def phi(z: Array) -> Array:
        u = w @ z + b
        y = np.zeros((M, R))
        for i in range(M):
            for r in range(R):
                y[i, r] = fc2[r] @ np.maximum(fc1[r] * u[i] + bias1[r], 0) + bias2[r]
        return np.maximum(y, 0).ravel() / np.sqrt(M)

    out = np.zeros((len(x), D))
    for h in range(H):
        for t in range(len(x)):
            seen = range(t + 1) if o.get("causal", True) else range(len(x))
            weight = np.array([phi(q[h][t]) @ phi(k[h][s]) for s in seen])
            out[t, 4 * h : 4 * h + 4] = weight @ v[h][list(seen)] / max(weight.sum(), 1e-6)
    return out @ p("out_weight", D, D).T


def norm_attention(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2405.15731: o_t = (1/eta_t) sum_s (q_t.k_s) v_s."""
    H, K = 2, 8
    q, k, v = (heads(x @ p(f"{n}_weight", D, D).T + p(f"{n}_bias", D), H) for n in "qkv")
    nu = x @ p("eta_weight", H, D).T + p("eta_bias", H)
    eta = {"exp": np.exp, "softplus": softplus, "sigmoid": sigmoid}[o["normaliser"]](nu)
    out = np.zeros((len(x), D))
    for h in range(H):
        for t in range(len(x)):
            y = sum((q[h][t] @ k[h][s]) * v[h][s] for s in range(t + 1))
            out[t, K * h : K * h + K] = y / eta[t, h]
    return out @ p("out_weight", D, D).T + p("out_bias", D)


def qlstm(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2405.15731, the plain cell."""
    u = x @ p("write_weight", D, D).T
    f, i, r = np.split(x @ p("gates_weight", 3 * D, D).T + p("gates_bias", 3 * D), 3, axis=1)
    a = sigmoid(f)
    if o.get("transition") == "reversed":
        a = sigmoid(-f) ** np.maximum(np.abs(p("power", 1)), 0)
        p.all["power"] = np.abs(p.all["power"])
    h, y = np.zeros(D), np.zeros((len(x), D))
    for t in range(len(x)):
        h = a[t] * h + sigmoid(i[t]) * u[t]
        y[t] = sigmoid(r[t]) * h
    return y @ p("out_weight", D, D).T


def two_mamba(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2602.17363, all pairs."""
    H = 4
    qkv = np.concatenate([x @ p(f"{n}_weight", D, D).T for n in "qkv"], axis=1)
    qkv = conv(qkv, p("conv_weight", 3 * D, 2))
    q, k, v = (heads(part, H) for part in np.split(qkv, 3, axis=1))
    g = -softplus(x @ p("decay_weight", H, D).T)
    out = np.zeros((len(x), D))
    for h in range(H):
        for t in range(len(x)):
            u = np.array([q[h][t] @ k[h][s] / 2 for s in range(t + 1)])
            d = np.array([np.exp(g[s + 1 : t + 1, h].sum()) for s in range(t + 1)])
            w = d * (np.exp(u) if o.get("kernel") == "exp" else u**2)
            out[t, 4 * h : 4 * h + 4] = w @ v[h][: t + 1] / max(w.sum(), 1e-8)
    return out @ p("out_weight", D, D).T


def inline(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2412.06590: v_mean + q Cov(k, v) / sqrt(K), over all tokens or those seen so far."""
    H = 4
    q, k, v = (heads(x @ p(f"{n}_weight", D, D).T + p(f"{n}_bias", D), H) for n in "qkv")
    out = np.zeros((len(x), D))
    for h in range(H):
        for t in range(len(x)):
            n = t + 1 if o.get("causal", True) else len(x)
            a, b = k[h][:n], v[h][:n]
            cov = (a - a.mean(0)).T @ (b - b.mean(0)) / n
            out[t, 4 * h : 4 * h + 4] = b.mean(0) + q[h][t] @ cov / 2
    return out @ p("out_weight", D, D).T + p("out_bias", D)


def selective_rope(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2511.17388 on linear attention without a sum: the complex recurrence of the state."""
    H, P = 4, 2
    q, k, v = (heads(x @ p(f"{n}_weight", D, D).T, H) for n in "qkv")
    xs = [z / np.sqrt((z * z).sum(1, keepdims=True) + 1e-6) for z in heads(x, H)]
    W, s = p("angle_weight", H, 4, P), p("angle_length", H)
    W = [s[h] * W[h] / np.linalg.norm(W[h], axis=0) for h in range(H)]
    phi = np.concatenate([xs[h] @ W[h] for h in range(H)], axis=1)
    phi = silu(conv(phi, p("angle_conv_weight", H * P, 4)))
    gate = np.concatenate(xs, axis=1) @ p("angle_gate_weight", H, D).T
    gate = sigmoid(gate + p("angle_gate_bias", H))
    temperature = np.array([1.0, 10000.0 ** (-1 / P)])
    out = np.zeros((len(x), D))
    for h in range(H):
        S = np.zeros((P, 4), complex)
        for t in range(len(x)):
            turn = temperature * phi[t, P * h : P * h + P] * gate[t, h]
            qc, kc = (z[h][t, :P] + 1j * z[h][t, P:] for z in (q, k))
            S = np.exp(1j * turn)[:, None] * S + np.outer(kc.conj(), v[h][t])
            out[t, 4 * h : 4 * h + 4] = (qc @ S).real
    return out @ p("out_weight", D, D).T


Equation = Callable[[Array, Weights, dict[str, Any]], Array]
EQUATIONS: list[tuple[str, Equation, dict[str, Any]]] = [
    ("taylor", taylor, {}),
    ("taylor", taylor, {"order": 4}),
    ("taylor", taylor, {"order": 3, "norm": "l2"}),
    ("taylor", taylor, {"norm": "gate"}),
    ("taylor", taylor, {"norm": "clampden"}),
    ("taylor", taylor, {"decay": "softplus"}),
    ("linear", linear, {}),
    ("linear", linear, {"power": 2}),
    ("retnet", retnet, {}),
    ("gla", gla, {"heads": 2}),
    ("deltanet", deltanet, {}),
    ("deltanet", deltanet, {"negative": True}),
    ("metala", metala, {"heads": 2}),
    ("luna", luna, {"map": {"hidden": 8}}),
    ("luna", luna, {"map": {"hidden": 8}, "causal": False}),
    ("norm_attention", norm_attention, {"heads": 2, "normaliser": "exp"}),
    ("norm_attention", norm_attention, {"heads": 2, "normaliser": "softplus"}),
    ("norm_attention", norm_attention, {"heads": 2, "normaliser": "sigmoid"}),
    ("qlstm", qlstm, {"block": "plain"}),
    ("qlstm", qlstm, {"block": "plain", "transition": "reversed"}),
    ("two_mamba", two_mamba, {}),
    ("two_mamba", two_mamba, {"kernel": "exp"}),
    ("inline", inline, {"residual": 0}),
    ("inline", inline, {"residual": 0, "causal": False}),
    ("linear", selective_rope,
     {"feature": "identity", "norm": "none", "position": {"kind": "selective_rope"}}),
]  # fmt: skip


def equations() -> list[Case]:
    cases = []
    for i, (mixer, equation, options) in enumerate(EQUATIONS):
        name = f"{i:02d}_{mixer}"
        p = Weights(name)
        x = p.random.normal(size=(B, T, D))
        y = np.stack([equation(row, p, options) for row in x])
        cases.append((name, mixer, options, 1e-9, {"x": x, "y": y, **p.all}))
    return cases


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


def main() -> None:
    which = {"equations": equations, "transformers": transformers}
    if len(sys.argv) != 2 or sys.argv[1] not in which:
        sys.exit("usage: mixer_goldens.py equations|transformers")
    tensors, metadata = {}, {}
    for name, mixer, options, tolerance, arrays in which[sys.argv[1]]():
        about = {"mixer": mixer, "D": D, "options": options, "tolerance": tolerance}
        metadata[name] = json.dumps(about)
        tensors |= {f"{name}.{key}": np.ascontiguousarray(value) for key, value in arrays.items()}
    FOLDER.mkdir(exist_ok=True)
    save_file(tensors, FOLDER / f"{sys.argv[1]}.safetensors", metadata)


if __name__ == "__main__":
    main()
