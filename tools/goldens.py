"""Golden values of every op in fp64, computed from the equations by plain loops over tokens.

    python tools/goldens.py            writes src/ops/goldens/<op>.safetensors
    python tools/goldens.py --check    recomputes everything and compares with the committed files

A file holds for every case its inputs, the outputs, and the gradients of L = sum(o * do) as
<case>.q, .o, .do, .dq, ...; its metadata maps <case> to {"op": ..., "options": {...}}. An option
that is absent has its default. Complex tensors are real ones with a last dimension of 2 and a name
that says so, <case>.v_re_im.

Below, a function computes one sequence: q (T,H,K), k (T,G,K), v (T,G,V); query head h reads
key/value head n = h // (H/G). Gradients are complex steps, dL/dx = Im L(x + i e) / e, e = 1e-30,
exact to rounding: so arrays may be complex, no product conjugates, max and abs go by real parts.
"""

import argparse
import json
import math
import sys
import zlib
from pathlib import Path

import numpy as np
from safetensors import safe_open

FOLDER = Path(__file__).resolve().parent.parent / "src/ops/goldens"
B, H, G, V = 2, 4, 2, 4


# ---- the equations ----------------------------------------------------------------------------


def visible(t, s, o):
    """Whether token t sees token s."""
    if o.get("causal", True) and s > t:
        return False
    if s < o.get("sinks", 0):  # the first tokens always
        return True
    return o.get("window", 0) == 0 or abs(t - s) < o["window"]


def decay(g, t, s):
    """exp(G_t - G_s), the product of exp(g_r) over s < r <= t; symmetric in s and t."""
    total = g[0] * 0
    for r in range(min(s, t) + 1, max(s, t) + 1):
        total = total + g[r]
    return np.exp(total)


def attention(x, o):
    """o_t = sum_s softmax_s(scale q_t.k_s) v_s over the visible s; norm_t = log denominator."""
    q, k, v = x["q"], x["k"], x["v"]
    T, scale = len(q), o.get("scale", q.shape[2] ** -0.5)
    out, norm = np.zeros((T, H, V), complex), np.zeros((T, H), complex)
    for h in range(H):
        n = h // (H // G)
        for t in range(T):
            num, den = 0, 0
            for s in range(T):
                if visible(t, s, o):
                    score = scale * (q[t, h] @ k[s, n])
                    if score.real > o.get("clamp", math.inf):
                        score = o["clamp"]
                    w = np.exp(score)  # w_ts = exp(scale q_t.k_s)
                    num, den = num + w * v[s, n], den + w
            out[t, h], norm[t, h] = num / den, np.log(den)  # o_t = num / den
    return {"o": out, "norm": norm}


def power(x, o):
    """o_t = sum_s w_ts v_s (/ sum_s w_ts), w_ts = sum_n c_n x_ts^n, decayed outside or inside."""
    q, k, v, g = x["q"], x["k"], x["v"], x.get("g")
    T, scale, order = len(q), o.get("scale", q.shape[2] ** -0.5), o.get("order", 2)
    c = o.get("coefficients") or [1 / math.factorial(n) for n in range(order + 1)]
    out, norm = np.zeros((T, H, V), complex), np.zeros((T, H), complex)
    for h in range(H):
        n = h // (H // G)
        for t in range(T):
            num, den = 0, 0
            for s in range(T):
                if not visible(t, s, o):
                    continue
                d = 1 if g is None else decay(g[:, n], t, s)
                outside, inside = (1, d) if o.get("decay") == "inside" else (d, 1)
                xts = scale * np.sum(q[t, h] * k[s, n] * inside)  # x_ts = scale q_t.k_s
                w = outside * sum(c[i] * xts**i for i in range(order + 1))  # p(x) = sum_n c_n x^n
                num, den = num + w * v[s, n], den + w
            if o.get("norm", "sum") == "none":
                out[t, h] = num
            elif den == 0:  # all weights 0: the output is 0
                norm[t, h] = -np.inf
            else:
                assert den.real > 0
                out[t, h], norm[t, h] = num / den, np.log(den)
    has_norm = o.get("norm", "sum") == "sum" and order % 2 == 0  # an odd sum may be negative
    return {"o": out, "norm": norm} if has_norm else {"o": out}


def power_recurrent(x, o):
    """The numerator of `power` as order+1 recurrences whose keys are full Kronecker powers."""
    q, k, v, g = x["q"], x["k"], x["v"], x["g"]
    T, K, scale = len(q), q.shape[2], q.shape[2] ** -0.5
    out = np.zeros((T, H, V))
    for h in range(H):
        n = h // (H // G)
        S = [np.zeros((K**i, V)) for i in range(o["order"] + 1)]
        for t in range(T):
            qn, kn, an = np.ones(1), np.ones(1), np.ones(1)
            for i in range(o["order"] + 1):
                a = an if o["decay"] == "inside" else np.exp(g[t, n])
                S[i] = np.reshape(a, (-1, 1)) * S[i] + np.outer(kn, v[t, n])  # S = a S + k^(n)T v
                out[t, h] += scale**i / math.factorial(i) * (qn @ S[i])  # sum_n 1/n! q^(n) S^n
                qn, kn = np.kron(qn, q[t, h]), np.kron(kn, k[t, n])  # k^(n+1) = k^(n) (x) k
                an = np.kron(an, np.exp(g[t, n]) * np.ones(K))  # inside: a^(n+1) = a^(n) (x) a
    return out


def linear(x, o):
    """S_t = diag(a_t) S_{t-1} + k_t^T v_t, o_t = scale q_t S_t; norm sum: z is one more column."""
    q, k, v, g = x["q"], x["k"], x["v"], x.get("g")
    T, K, scale, by_sum = len(q), q.shape[2], o.get("scale", 1), o.get("norm", "none") == "sum"
    if by_sum:
        v = np.concatenate([v, np.ones((T, G, 1))], axis=2)  # z: the same recurrence with v = 1
    y = np.zeros((T, H, v.shape[2]), complex)
    state = np.zeros((G, K, v.shape[2]), complex)
    for h in range(H):
        n = h // (H // G)
        if o.get("causal", True):
            S = x["state0"][n] if "state0" in x else state[n] * 0
            for t in range(T):
                a = 1 if g is None else np.reshape(np.exp(g[t, n]), (-1, 1))  # a_t = exp(g_t)
                S = a * S + np.outer(k[t, n], v[t, n])  # S_t = diag(a_t) S_{t-1} + k_t^T v_t
                y[t, h] = scale * (q[t, h] @ S)  # o_t = scale q_t S_t
            state[n] = S
        else:
            for t in range(T):
                for s in range(T):
                    d = 1 if g is None else decay(g[:, n], t, s)
                    w = scale * np.sum(q[t, h] * k[s, n] * d)  # w_ts = scale sum_c q_tc k_sc d_tsc
                    y[t, h] += w * v[s, n]
    out = {"o": y}
    if by_sum:
        assert np.all(y[..., V].real > 0)
        out = {"o": y[..., :V] / y[..., V:], "norm": np.log(y[..., V])}  # o_t / (scale q_t.z_t)
    return out | {"state": state} if o.get("causal", True) else out


def mlstm(x, o):
    """mLSTM with its stabiliser m, true state = exp(m) (C, n); zero state: m_0 = -inf."""
    q, k, v, i, f = x["q"], x["k"], x["v"], x["i"], x["f"]
    T, K = len(q), q.shape[2]
    out, last = np.zeros((T, H, V), complex), {}
    last["C"], last["n"], last["m"] = (np.zeros(d, complex) for d in ((G, K, V), (G, K), (G,)))
    for h in range(H):
        j = h // (H // G)
        C = x["C0"][j] if "C0" in x else np.zeros((K, V))
        n = x["n0"][j] if "n0" in x else np.zeros(K)
        m = x["m0"][j] if "m0" in x else None
        for t in range(T):
            if m is None:
                m_new, keep = i[t, j], 0
            else:
                m_new = max(f[t, j] + m, i[t, j], key=np.real)  # m_t = max(f_t + m_{t-1}, i_t)
                keep = np.exp(f[t, j] + m - m_new)
            write = np.exp(i[t, j] - m_new)
            C = keep * C + write * np.outer(k[t, j], v[t, j])  # C_t = e^(f+m'-m) C + e^(i-m) k^T v
            n = keep * n + write * k[t, j]  # n_t = e^(f+m'-m) n + e^(i-m) k
            m = m_new
            den = q[t, h] @ n
            den = max(den if den.real >= 0 else -den, np.exp(-m), key=np.real)
            out[t, h] = (q[t, h] @ C) / den  # o_t = q C / max(|q.n|, e^-m)
        last["C"][j], last["n"][j], last["m"][j] = C, n, m
    return {"o": out} | last


def delta(x, o):
    """S^ = diag(a_t) S_{t-1}, S_t = S^ + beta_t k_t^T (v_t - k_t S^), o_t = scale q_t S_t."""
    q, k, v, beta, g = x["q"], x["k"], x["v"], x["beta"], x.get("g")
    T, K, scale = len(q), q.shape[2], o.get("scale", 1)
    out, state = np.zeros((T, H, V), complex), np.zeros((G, K, V), complex)
    for h in range(H):
        n = h // (H // G)
        S = x["state0"][n] if "state0" in x else state[n] * 0
        for t in range(T):
            a = 1 if g is None else np.reshape(np.exp(g[t, n]), (-1, 1))  # a_t = exp(g_t)
            S = a * S  # S^ = diag(a_t) S_{t-1}
            e = v[t, n] - k[t, n] @ S  # e_t = v_t - k_t S^
            S = S + beta[t, n] * np.outer(k[t, n], e)  # S_t = S^ + beta_t k_t^T e_t
            out[t, h] = scale * (q[t, h] @ S)  # o_t = scale q_t S_t
        state[n] = S
    return {"o": out, "state": state}


def scan(x, o):
    """h_t = exp(g_t) h_{t-1} + v_t elementwise, g (T,H,V) or (T,H); o = all h."""
    v, g = x["v"], x["g"]
    h, out = x.get("state0", v[0] * 0), []
    for t in range(len(v)):
        h = np.exp(g[t]).reshape(H, -1) * h + v[t]  # h_t = exp(g_t) h_{t-1} + v_t
        out.append(h)
    return {"o": np.array(out), "state": h}


def scan_complex(x, o):
    """The same for complex numbers, written in their real and imaginary parts (last dimension)."""
    v, g = x["v_re_im"], x["g_re_im"]
    h, out = x.get("state0_re_im", v[0] * 0), []
    for t in range(len(v)):
        size, c, s = np.exp(g[t, ..., 0]), np.cos(g[t, ..., 1]), np.sin(g[t, ..., 1])
        re = size * (c * h[..., 0] - s * h[..., 1]) + v[t, ..., 0]  # e^g = size (c + i s)
        im = size * (s * h[..., 0] + c * h[..., 1]) + v[t, ..., 1]
        h = np.stack([re, im], axis=-1)
        out.append(h)
    return {"o_re_im": np.array(out), "state_re_im": h}


# ---- the cases --------------------------------------------------------------------------------


class Draw:
    """Random inputs of one sequence batch; RandomState's stream is frozen across numpy versions."""

    def __init__(self, name, T, K):
        self.random, self.T, self.K = np.random.RandomState(zlib.crc32(name.encode())), T, K

    def normal(self, *shape):
        return self.random.standard_normal((B, *shape))

    def uniform(self, low, high, *shape):
        return self.random.uniform(low, high, (B, *shape))

    def qkv(self):
        T, K = self.T, self.K
        return {"q": self.normal(T, H, K), "k": self.normal(T, G, K), "v": self.normal(T, G, V)}

    def log_decay(self, *tail):
        return {"g": self.uniform(-1.5, 0, self.T, G, *tail)}


def attention_cases():
    options = {
        "causal": {},
        "both": {"causal": False},
        "scale": {"scale": 0.3},
        "clamp": {"clamp": 0.4},
        "window": {"window": 3},
        "window_sinks": {"window": 3, "sinks": 2},
        "both_window_sinks": {"causal": False, "window": 3, "sinks": 1},
    }
    for name, o in options.items():
        yield name, attention, Draw("attention/" + name, 11, 3).qkv(), o


def power_cases():
    options = {
        "order2": ({}, None),
        "order4_outside": ({"order": 4, "scale": 0.4}, ()),
        "order3_odd": ({"order": 3, "odd": True, "scale": 0.1}, None),
        "coefficients_none": ({"coefficients": [0.5, -0.25, 1.5], "norm": "none"}, ()),
        "inside_head": ({"decay": "inside"}, ()),
        "inside_channel_none": ({"order": 3, "decay": "inside", "norm": "none"}, (3,)),
        "both_outside": ({"causal": False}, ()),
        "both_inside_channel": ({"causal": False, "decay": "inside"}, (3,)),
    }
    for name, (o, tail) in options.items():
        draw = Draw("power/" + name, 7, 3)
        yield name, power, draw.qkv() | ({} if tail is None else draw.log_decay(*tail)), o


def linear_cases():
    options = {
        "plain": ({}, None, False),
        "head": ({"scale": 0.6}, (), False),
        "channel": ({}, (5,), True),
        "both_head": ({"causal": False}, (), False),
        "both_channel": ({"causal": False}, (5,), False),
        "sum": ({"norm": "sum"}, (), True),
        "both_sum": ({"norm": "sum", "causal": False}, None, False),
    }
    for name, (o, tail, has_state) in options.items():
        draw = Draw("linear/" + name, 7, 5)
        x = draw.qkv() | ({} if tail is None else draw.log_decay(*tail))
        if has_state:
            x["state0"] = draw.normal(G, 5, V)
        if o.get("norm") == "sum":  # positive, so that the denominator is
            x["q"], x["k"] = abs(x["q"]) + 0.1, abs(x["k"]) + 0.1
            if has_state:
                x["state0"] = np.concatenate([x["state0"], draw.uniform(0.5, 2, G, 5, 1)], axis=3)
        yield name, linear, x, o


def mlstm_cases():
    options = {"zero_state": (0, False), "state": (0, True), "weak": (-4, False)}
    for name, (shift, has_state) in options.items():
        draw = Draw("mlstm/" + name, 11, 3)
        gates = {"i": draw.normal(11, G) * 2 + shift, "f": draw.uniform(-1.5, 0, 11, G)}
        x = draw.qkv() | gates
        if has_state:
            x |= {"C0": draw.normal(G, 3, V), "n0": draw.normal(G, 3), "m0": draw.normal(G)}
        yield name, mlstm, x, {}


def delta_cases():
    options = {
        "plain": ({}, None, False),
        "gated": ({}, (), False),
        "state": ({"scale": 0.6}, None, True),
        "gated_state": ({}, (), True),
        "channel": ({}, (3,), False),
        "channel_state": ({"scale": 0.6}, (3,), True),
    }
    for name, (o, tail, has_state) in options.items():
        draw = Draw("delta/" + name, 13, 3)
        x = draw.qkv() | {"beta": draw.uniform(0.05, 1.95, 13, G)}
        x["k"] /= np.sqrt(np.sum(x["k"] ** 2, axis=3, keepdims=True))  # |k| = 1
        x |= {} if tail is None else draw.log_decay(*tail)
        x |= {"state0": draw.normal(G, 3, V)} if has_state else {}
        yield name, delta, x, o


def scan_cases():
    for name in ("real", "real_head", "real_state", "complex", "complex_state"):
        draw = Draw("scan/" + name, 7, 0)
        if name.startswith("real"):
            tail = () if "head" in name else (V,)
            x = {"v": draw.normal(7, H, V), "g": draw.uniform(-1.5, 0, 7, H, *tail)}
            x |= {"state0": draw.normal(H, V)} if "state" in name else {}
            yield name, scan, x, {}
        else:
            parts = draw.uniform(-1.5, 0, 7, H, V), draw.uniform(-3, 3, 7, H, V)
            x = {"v_re_im": draw.normal(7, H, V, 2), "g_re_im": np.stack(parts, axis=-1)}
            x |= {"state0_re_im": draw.normal(H, V, 2)} if "state" in name else {}
            yield name, scan_complex, x, {}


CASES = {
    "attention": attention_cases,
    "power": power_cases,
    "linear": linear_cases,
    "mlstm": mlstm_cases,
    "delta": delta_cases,
    "scan": scan_cases,
}


# ---- gradients, files, checks -----------------------------------------------------------------


def gradients(function, x, o, output, do):
    """dL/dx for every entry of every input of one sequence, L = sum(o * do), by complex steps."""
    step, result = 1e-30, {}
    for name in x:
        result["d" + name] = np.zeros(x[name].shape)
        for index in np.ndindex(x[name].shape):
            moved = x | {name: x[name].astype(complex)}
            moved[name][index] += 1j * step
            result["d" + name][index] = np.sum(function(moved, o)[output] * do).imag / step
    return result


def compute(op):
    """All tensors of a golden file, and its metadata."""
    tensors, metadata = {}, {}
    for case, function, x, o in CASES[op]():
        metadata[case] = json.dumps({"op": op, "options": o})
        sequences = []
        for b in range(B):
            one = {name: x[name][b] for name in x}
            result = {name: np.real(value) for name, value in function(one, o).items()}
            output = "o" if "o" in result else "o_re_im"
            random = np.random.RandomState(zlib.crc32(f"{op}/{case}/{b}".encode()))
            do = random.standard_normal(result[output].shape)
            result |= {"d" + output: do} | gradients(function, one, o, output, do)
            sequences.append(one | result)
        for name in sequences[0]:
            stacked = np.stack([sequence[name] for sequence in sequences])
            assert np.all(np.isfinite(stacked)), (op, case, name)
            tensors[f"{case}.{name}"] = np.ascontiguousarray(stacked, dtype=np.float64)
    return tensors, metadata


def check_recurrence():
    """The sum over pairs equals the recurrence over Kronecker powers, orders 0..3."""
    for where, tail in (("outside", ()), ("inside", ()), ("inside", (3,))):
        draw = Draw("recurrence", 7, 3)
        x = {name: value[0] for name, value in (draw.qkv() | draw.log_decay(*tail)).items()}
        for order in range(4):
            o = {"order": order, "decay": where, "norm": "none"}
            np.testing.assert_allclose(power(x, o)["o"].real, power_recurrent(x, o), atol=1e-13)


# o_2, o_3, o_4 of a worked example: Taylor softmax (arXiv 2507.23632), 2Mamba (arXiv 2602.17363).
WORKED = {
    "softmax": ".862786044 -1.382537200 .341956825 .239829484 1.110043324 .042015783",
    "N=0 sum": ".75 -.875 .166666667 .416666667 .625 .5625",
    "N=2 sum": ".857858444 -1.360362997 .329141602 .259257128 1.025681394 .130074458",
    "N=4 sum": ".862648642 -1.381918887 .341718977 .240216038 1.102889006 .050231836",
    "N=8 sum": ".862786027 -1.382537123 .341956816 .239829499 1.110036505 .042024659",
    "exp none": "2.634521145 -4.221583682 1.067489481 .748677706 8.506258609 .321966818",
    "exp l2": ".529425315 -.848356550 .818714513 .574200790 .999284436 .037823495",
    "N=2 none": "2.531325531 -4.014090681 1.023494148 .806182360 7.625731641 .967077025",
    "N=1 l2": ".546159755 -.837681038 .935778665 .352587990 .971224562 -.238165594",
    "N=2 decay": ".790292483 -1.056316174 -.025856369 1.069197693 1.483382056 .853080369",
    "square": ".976470588 -1.894117647 -.016317016 .997668998 .317753458 1.302021584",
    "square decay": ".958793943 -1.814572744 -.420070421 1.862121239 .642408881 1.640283731",
    "exp decay": ".796228634 -1.083028851 -.002396685 1.026683374 1.592024729 .771249731",
}


def check_worked_numbers():
    q = [[0.5, -1], [1, 0.25], [-0.75, 0.5], [0.2, 1.5]]
    k = [[1, 0.5], [-0.5, 1], [0.25, -1.25], [1.5, 0.75]]
    v = [[1, -2], [0.5, 0.25], [-1, 3], [2, 1]]
    # The loops above know H = 4 heads and V = 4 values: the example is repeated in both.
    x = {
        "q": np.tile(np.array(q)[:, None], (1, H, 1)),
        "k": np.tile(np.array(k)[:, None], (1, G, 1)),
        "v": np.tile(np.array(v)[:, None], (1, G, V // 2)),
    }
    g = -np.log1p(np.exp([0.1, -0.2, 0.3, 0.0]))  # g = -softplus
    decayed = x | {"g": np.tile(g[:, None], (1, G))}

    def taylor(order, norm="sum", x=x, **options):
        return power(x, {"order": order, "norm": norm, **options})["o"].real[:, 0, :2]

    def l2(y):
        return y / np.sqrt(np.sum(y**2, axis=1, keepdims=True))

    softmax = {name: value.real[:, 0] for name, value in attention(x, {}).items()}
    softmax["o"] = softmax["o"][:, :2]
    rows = {
        "softmax": softmax["o"],
        "N=0 sum": taylor(0),
        "N=2 sum": taylor(2),
        "N=4 sum": taylor(4),
        "N=8 sum": taylor(8),
        "exp none": softmax["o"] * np.exp(softmax["norm"])[:, None],
        "exp l2": l2(softmax["o"]),
        "N=2 none": taylor(2, "none"),
        "N=1 l2": l2(taylor(1, "none")),
        "N=2 decay": taylor(2, x=decayed),
        "square": taylor(2, coefficients=[0, 0, 1]),
        "square decay": taylor(2, x=decayed, coefficients=[0, 0, 1]),
        "exp decay": taylor(30, x=decayed),  # 30 terms are the exponential here
    }
    for name, text in WORKED.items():
        first = (0, 0) if "square" in name else (1, -2)  # q_1.k_1 = 0: the square sees nothing
        first = l2(np.array([first]))[0] if "l2" in name else first
        expected = np.vstack([first, np.array(text.split(), float).reshape(3, 2)])
        np.testing.assert_allclose(rows[name], expected, rtol=0, atol=6e-10, err_msg=name)
    errors = [np.max(abs(taylor(order) - softmax["o"])) for order in (2, 4, 6, 8, 10)]
    assert errors == sorted(errors, reverse=True) and abs(errors[-1] - 1.4e-7) < 1e-8, errors


def save(path, tensors, metadata):
    """A safetensors file with its entries in order; the package's writer shuffles the metadata."""
    header, end = {"__metadata__": metadata}, 0
    for name, value in tensors.items():
        start, end = end, end + value.nbytes
        header[name] = {"dtype": "F64", "shape": value.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(value.astype("<f8").tobytes() for value in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def compare(op, tensors, metadata):
    """What differs between these values and the committed file, as one line each."""
    with safe_open(FOLDER / f"{op}.safetensors", "np") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}
        if file.metadata() != metadata:
            yield f"{op}: cases or options differ"
    for name in sorted(stored.keys() | tensors.keys()):
        if name not in stored or name not in tensors:
            yield f"{op}: {name} is {'not' if name not in stored else 'only'} in the file"
        elif stored[name].shape != tensors[name].shape:
            yield f"{op}: {name} is {stored[name].shape} in the file, {tensors[name].shape} now"
        elif not np.allclose(stored[name], tensors[name], rtol=1e-11, atol=1e-12):
            yield f"{op}: {name} differs by {np.max(abs(stored[name] - tensors[name])):.2g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed files")
    check = parser.parse_args().check
    check_recurrence()
    check_worked_numbers()
    differences = []
    for op in CASES:
        tensors, metadata = compute(op)
        if check:
            differences += compare(op, tensors, metadata)
        else:
            FOLDER.mkdir(exist_ok=True)
            save(FOLDER / f"{op}.safetensors", tensors, metadata)
        print(f"{op}: {len(metadata)} cases, {len(tensors)} tensors")
    print("\n".join(differences), end="\n" if differences else "", file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
