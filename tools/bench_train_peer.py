"""A training step in PyTorch, as the peer of `horner bench train`: the same model, data and optimiser.

    x = E[token];  x += mixer(rms_norm(x));  x += (silu(x W1) * x W3) W2;  logits = rms_norm(x) W_head

mixer: softmax   scaled_dot_product_attention, causal; q and k rotated (RoPE), as those of taylor
       linear    elu+1 features, chunked with a (C,C) mask inside a chunk and a running state between
       taylor    order 2: 1 + x + x^2/2 with x = q.k/sqrt(K), as a masked (T,T) matrix, divided by its row sum
Prints one line of JSON: seconds of a step (median), tokens per second, peak bytes on a GPU; with --compile the same once
more for the model compiled by torch.compile.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Mixer(nn.Module):
    def __init__(self, kind: str, D: int, heads: int):
        super().__init__()
        self.kind, self.heads = kind, heads
        self.q, self.k, self.v, self.out = (nn.Linear(D, D, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, D = x.shape
        q, k, v = (f(x).view(B, T, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))  # (B,H,T,K)
        if self.kind != "linear":
            q, k = rope(q), rope(k)
        if self.kind == "softmax":
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.kind == "taylor":
            s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            s = (1 + s + s * s / 2).tril()
            o = s @ v / s.sum(-1, keepdim=True)
        else:
            o = linear(F.elu(q) + 1, F.elu(k) + 1, v)
        return self.out(o.transpose(1, 2).reshape(B, T, D))


def rope(x: torch.Tensor) -> torch.Tensor:
    """Pairs (j, j + P) of (B,H,T,K) turned by t 10000^(-2j/K); the table is made once."""
    T, K = x.shape[-2:]
    if (T, K, x.device) not in TABLE:
        angle = torch.arange(T)[:, None] * 10000.0 ** (-2 * torch.arange(K // 2) / K)
        TABLE[T, K, x.device] = tuple(torch.cat([f(angle)] * 2, -1).to(x.device) for f in (torch.cos, torch.sin))
    cos, sin = (table.to(x.dtype) for table in TABLE[T, K, x.device])
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


TABLE: dict[tuple[int, int, torch.device], tuple[torch.Tensor, ...]] = {}


def linear(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, C: int = 64) -> torch.Tensor:
    """o_t = q_t S_t / (q_t z_t), S_t = S_{t-1} + k_t^T v_t; the normaliser is one more value column."""
    B, H, T, K = q.shape
    v = F.pad(v, (0, 1), value=1.0)
    C = min(C, T)
    q, k, v = (x.reshape(B, H, T // C, C, -1) for x in (q, k, v))
    S = (k.transpose(-1, -2) @ v).cumsum(2)
    S = torch.cat([torch.zeros_like(S[:, :, :1]), S[:, :, :-1]], 2)
    o = (q @ k.transpose(-1, -2)).tril() @ v + q @ S
    o = o.reshape(B, H, T, -1)
    return o[..., :-1] / o[..., -1:]


class Block(nn.Module):
    def __init__(self, kind: str, D: int, heads: int, mlp_dim: int):
        super().__init__()
        E = mlp_dim or (8 * D // 3 + 63) // 64 * 64
        self.norm, self.mlp_norm = nn.RMSNorm(D, eps=1e-5), nn.RMSNorm(D, eps=1e-5)
        self.mixer = Mixer(kind, D, heads)
        self.gate, self.up, self.down = nn.Linear(D, E, False), nn.Linear(D, E, False), nn.Linear(E, D, False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mixer(self.norm(x))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, kind: str, vocabulary: int, D: int, layers: int, heads: int, mlp_dim: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, D)
        self.blocks = nn.ModuleList(Block(kind, D, heads, mlp_dim) for _ in range(layers))
        self.norm = nn.RMSNorm(D, eps=1e-5)
        self.head = nn.Linear(D, vocabulary, False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def time_steps(a: argparse.Namespace, compiled: bool) -> dict[str, float]:
    torch.manual_seed(0)
    model = Model(a.mixer, a.vocabulary, a.D, a.layers, a.heads, a.mlp_dim).to(a.device)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), fused=True)
    run = torch.compile(model) if compiled else model
    if a.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    times = []
    for step in range(a.steps + 3):
        tokens = torch.randint(a.vocabulary, (a.B, a.T + 1), device=a.device)
        if a.device != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(a.device.split(":")[0], torch.bfloat16, enabled=a.device != "cpu"):
            logits = run(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        if step >= 3:
            times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times), "parameters": sum(p.numel() for p in model.parameters()),
            "memory": torch.cuda.max_memory_allocated() if a.device != "cpu" else 0}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixer", default="softmax", choices=["softmax", "linear", "taylor"])
    parser.add_argument("--heads", type=int, default=4)
    for name, value in (("B", 32), ("T", 256), ("D", 128), ("layers", 2), ("mlp_dim", 0), ("vocabulary", 256), ("steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true")
    a = parser.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    answer = time_steps(a, compiled=False)
    answer["tokens_per_second"] = a.B * a.T / answer["seconds"]
    if a.compile:
        answer |= {f"compiled_{name}": value for name, value in time_steps(a, compiled=True).items()}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
