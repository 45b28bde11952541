"""The mixers' equations as the papers print them: numpy loops in fp64, for mixer_goldens.py.

A function sees one sequence x (T,D) and draws its weights as p(name, shape...).
"""

import zlib
from typing import Any, Callable

import numpy as np

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


def kda(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2510.26692, the recurrence; gates as in the authors' layer."""
    H, K = o.get("heads", 4), D // o.get("heads", 4)
    R = o.get("rank", K)
    qkv = np.concatenate([x @ p(f"{n}_weight", D, D).T for n in "qkv"], axis=1)
    qkv = silu(conv(qkv, p("conv_weight", 3 * D, 4)))
    q, k, v = (heads(part, H) for part in np.split(qkv, 3, axis=1))
    beta = sigmoid(x @ p("beta_weight", H, D).T) * (2 if o.get("negative") else 1)
    f = x @ p("decay_down_weight", R, D).T @ p("decay_up_weight", D, R).T
    dt = heads(softplus(f + p("step_bias", D)), H)
    gate = x @ p("gate_down_weight", R, D).T @ p("gate_up_weight", D, R).T
    out = np.zeros((len(x), D))
    for h in range(H):
        A, S = np.exp(p("A_log", H)[h]), np.zeros((K, K))
        for t in range(len(x)):
            a, b = (z[h][t] / np.sqrt(z[h][t] @ z[h][t] + 1e-6) for z in (q, k))
            S = np.exp(-A * dt[h][t])[:, None] * S
            S = S - beta[t, h] * np.outer(b, b @ S) + beta[t, h] * np.outer(b, v[h][t])
            out[t, K * h : K * h + K] = rms(a @ S / np.sqrt(K), 1e-5) * p("norm_weight", K)
    return (out * sigmoid(gate + p("gate_up_bias", D))) @ p("out_weight", D, D).T


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
            seen = range(t + 1 if o.get("causal", True) else len(x))
            y = sum((q[h][t] @ k[h][s]) * v[h][s] for s in seen)
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
    qkv = conv(qkv, p("conv_weight", 3 * D, 2)) + p("conv_bias", 3 * D)
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


def gated_conv(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """arXiv:2312.04927: a linear gate times a short causal filter; the code adds the input."""
    gate = x @ p("gate_weight", D, D).T + p("gate_bias", D)
    y = gate * (conv(x, p("filter_weight", D, o.get("kernel", 3))) + p("offset", D))
    return y + x if o.get("residual", True) else y


def around(q: Array, k: Array, mu: Array, order: int) -> float:
    """softmax's weight e^{q.k} as a series around the nearest centre."""
    c = min(range(len(mu)), key=lambda i: ((k - mu[i]) ** 2).sum())
    u, weight, term = q @ (k - mu[c]) / np.sqrt(len(q)), 0.0, 1.0
    for n in range(order + 1):
        weight, term = weight + term, term * u / (n + 1)
    return float(np.exp(q @ mu[c] / np.sqrt(len(q))) * weight)


def centres(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """Keys replaced by their centres, and the series around them: all pairs."""
    H, G, K = 4, o.get("groups", 4), 4
    q = heads(x @ p("q_weight", D, D).T, H)
    k, v = (heads(x @ p(f"{n}_weight", G * K, D).T, G) for n in "kv")
    mu = p("centres", G, o["count"], K)
    out = np.zeros((len(x), D))
    for h in range(H):
        g = h * G // H
        a, b = rope(q[h]), rope(k[g])
        for t in range(len(x)):
            w = np.array([around(a[t], b[s], mu[g], o.get("order", 0)) for s in range(t + 1)])
            out[t, K * h : K * h + K] = w @ v[g][: t + 1] / w.sum()
    return out @ p("out_weight", D, D).T


def far_weight(
    q: Array, k: Array, h: int, g: int, p: Weights, o: dict[str, Any], H: int, G: int
) -> float:
    """The weight of a token beyond the window, under softmax's normaliser."""
    K = len(q)
    if o["far"] == "centres":
        return around(q, k, p("centres", G, o["count"], K)[g], o.get("order", 0))
    if o["far"] == "taylor":
        return around(q, k, p("centre", G, K)[g][None], 2)
    a, b = q @ p("feature_q", H, K, K)[h], k @ p("feature_k", G, K, K)[g]
    phi = [np.concatenate([np.exp(z) / np.exp(z).sum() for z in (y, -y)]) for y in (a, b)]
    return float(phi[0] @ phi[1])


def recurrent_far(x: Array, q: Array, k: Array, v: Array, g: int, p: Weights, far: str) -> Array:
    """The recurrence of key head g over all tokens, read by one query head."""
    G, K, R = 2, q.shape[1], 3
    q, k = (z / np.sqrt((z * z).sum(1, keepdims=True) + 1e-6) for z in (q, k))
    per_key = far in ("gla", "kda")
    rates = G * K if per_key else G
    y = x @ p("decay_down_weight", R, D).T if per_key else x
    y = softplus(y @ p("decay_weight", rates, y.shape[1]).T + p("decay_bias", rates))
    decay = np.exp(-y[:, K * g : K * g + K] if per_key else -y[:, g : g + 1])
    out, S, n = np.zeros((len(x), v.shape[1])), np.zeros((K, v.shape[1])), np.zeros(K)
    for t in range(len(x)):
        S, n, write = decay[t][:, None] * S, decay[t] * n, v[t]
        if far in ("gated_deltanet", "kda"):
            beta = sigmoid(x[t] @ p("beta_weight", G, D)[g] + p("beta_bias", G)[g])
            write = beta * (v[t] - k[t] @ S)
        if far == "mlstm":
            i = x[t] @ p("input_gate_weight", G, D)[g] + p("input_gate_bias", G)[g]
            write, n = np.exp(15 * np.tanh(i / 15)) * v[t], n + np.exp(15 * np.tanh(i / 15)) * k[t]
        S = S + np.outer(k[t], write)
        out[t] = q[t] @ S / (max(abs(q[t] @ n), 1) if far == "mlstm" else 1)
        if far in ("gla", "mlstm"):
            out[t] = rms(out[t], 1e-5)
    return out


def hybrid(x: Array, p: Weights, o: dict[str, Any]) -> Array:
    """softmax over window and sinks; the tokens beyond under its normaliser."""
    H, G, K, far = 4, 2, 4, o["far"]
    q = heads(x @ p("q_weight", D, D).T, H)
    k, v = (heads(x @ p(f"{n}_weight", G * K, D).T, G) for n in "kv")
    out = np.zeros((len(x), D))
    for h in range(H):
        g = h * G // H
        a, b = rope(q[h]), rope(k[g])
        left = far in ("linear", "taylor", "centres")
        mean_weight, y = np.zeros(len(x)), np.zeros((len(x), K))  # of the far tokens
        if not left:
            mean_weight = np.exp(x @ p("mass_weight", H, D)[h] + p("mass_bias", H)[h])
            y = recurrent_far(x, a, b, v[g], g, p, far) * p("far_scale", H)[h]
            y = y + p("far_mean", H, K)[h]
        for t in range(len(x)):
            w = np.zeros(t + 1)
            for s in range(t + 1):
                if t - s < o["window"] or s < o["sinks"]:
                    w[s] = np.exp(a[t] @ b[s] / np.sqrt(K))
                elif left:
                    w[s] = np.exp(p("far_bias", H)[h]) * far_weight(a[t], b[s], h, g, p, o, H, G)
            z = max(t + 1 - o["window"] - o["sinks"], 0) * mean_weight[t]
            out[t, K * h : K * h + K] = (w @ v[g][: t + 1] + z * y[t]) / (w.sum() + z)
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
    ("conv", gated_conv, {}),
    ("conv", gated_conv, {"kernel": 4, "residual": False}),
    ("norm_attention", norm_attention, {"heads": 2, "normaliser": "exp", "causal": False}),
    ("kda", kda, {}),
    ("kda", kda, {"heads": 2, "rank": 3, "negative": True}),
    ("centres", centres, {"count": 3}),
    ("centres", centres, {"count": 2, "order": 2, "groups": 2}),
    *(("hybrid", hybrid, {"groups": 2, "window": 3, "sinks": 1, "far": far, **more})
      for far, more in [("linear", {}), ("taylor", {}), ("centres", {"count": 3}),
                        ("centres", {"count": 2, "order": 2}), ("gla", {"rank": 3}), ("mlstm", {}),
                        ("gated_deltanet", {}), ("kda", {"rank": 3})]),
]  # fmt: skip


def by_equations(
    rows: list[tuple[str, Equation, dict[str, Any]]], tolerance: float
) -> list[Case]:
    cases = []
    for i, (mixer, equation, options) in enumerate(rows):
        name = f"{i:02d}_{mixer}"
        p = Weights(name)
        x = p.random.normal(size=(B, T, D))
        y = np.stack([equation(row, p, options) for row in x])
        cases.append((name, mixer, options, tolerance, {"x": x, "y": y, **p.all}))
    return cases


def equations() -> list[Case]:
    return by_equations(EQUATIONS, 1e-9)
