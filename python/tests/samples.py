"""THE table of sample inputs that every test of the ops walks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import horner

OPS: dict[str, Callable[..., horner.Result]] = {
    "attention": horner.attention,
    "power": horner.power,
    "linear": horner.linear,
    "delta": horner.delta,
    "scan": horner.scan,
}
NORM = {"power": "sum", "linear": "none"}  # the defaults of `norm`
H, G, K, V = 4, 2, 3, 4
DECAY = {"head": (), "key": (K,)}  # the last dimensions of g (B,T,G,...)


@dataclass(frozen=True)
class Sample:
    """One op with one set of options that changes its mathematics, and random inputs for it."""

    op: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    decay: str = ""
    complex: bool = False
    exponential: bool = False  # an input gate; the state is then stored by a maximum, which takes no gradient

    @property
    def call(self) -> Callable[..., horner.Result]:
        return OPS[self.op]

    @property
    def causal(self) -> bool:
        return bool(self.options.get("causal", True))

    @property
    def has_norm(self) -> bool:
        return self.op == "attention" or self.options.get("norm", NORM.get(self.op)) == "sum"

    @property
    def everything(self) -> dict[str, Any]:
        """The options, and every output that the op then has."""
        more = {"log_norm": True} if self.has_norm else {}
        return self.options | more | {"final_state": True}

    @property
    def differentiable(self) -> dict[str, Any]:
        """The same, less a state that is stored by a maximum: its gradient holds the maximum fixed."""
        return self.everything | {"final_state": not self.exponential}

    def inputs(
        self, B: int = 2, T: int = 7, dtype: torch.dtype = torch.float64, seed: int = 0
    ) -> dict[str, Tensor]:
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=random, dtype=dtype)

        def log_decay(*shape: int) -> Tensor:
            return -torch.rand(shape, generator=random, dtype=dtype)

        if self.op == "scan":
            x = {"v": normal(B, T, H, V), "g": log_decay(B, T, H, V)}
            if self.complex:
                x = {name: torch.complex(real, normal(B, T, H, V)) for name, real in x.items()}
            return x
        x = {"q": normal(B, T, H, K), "k": normal(B, T, G, K), "v": normal(B, T, G, V)}
        if self.op == "linear" and self.has_norm:  # positive, so that the normaliser is
            x["q"], x["k"] = x["q"].abs() + 0.1, x["k"].abs() + 0.1
        if self.op == "delta":
            x["k"] = torch.nn.functional.normalize(x["k"], dim=-1)
            x["beta"] = 2 * torch.rand((B, T, G), generator=random, dtype=dtype)
        if self.exponential:
            x["i"] = normal(B, T, G)
        if self.decay:
            x["g"] = log_decay(B, T, G, *DECAY[self.decay])
        return x


SAMPLES = [
    Sample("attention", "causal"),
    Sample("attention", "clamped", {"clamp": 0.4}),
    Sample("attention", "both", {"causal": False}),
    Sample("attention", "window", {"window": 3, "sinks": 1}),
    Sample("power", "order2"),
    Sample("power", "outside", {"order": 4, "scale": 0.4}, "head"),
    Sample("power", "inside", {"order": 3, "norm": "none", "decay": "inside"}, "key"),
    Sample("power", "both", {"causal": False}, "head"),
    Sample("linear", "plain"),
    Sample("linear", "head", {"scale": 0.5}, "head"),
    Sample("linear", "key", {}, "key"),
    Sample("linear", "sum", {"norm": "sum"}, "head"),
    Sample("linear", "exponential", {"norm": "bounded"}, "head", exponential=True),
    Sample("linear", "both", {"causal": False}, "key"),
    Sample("delta", "plain"),
    Sample("delta", "gated", {"scale": 0.5}, "head"),
    Sample("delta", "key", {}, "key"),
    Sample("scan", "real"),
    Sample("scan", "complex", {}, complex=True),
]


def name_of(sample: Sample) -> str:
    """The name of a sample in pytest's list."""
    return f"{sample.op}-{sample.name}"


def tensors(result: horner.Result) -> list[Tensor]:
    """Every floating-point tensor of a result."""
    every = [result.o, *result.state] + ([] if result.norm is None else [result.norm])
    return [x for x in every if x.is_floating_point() or x.is_complex()]


def part(inputs: dict[str, Tensor], start: int, end: int) -> dict[str, Tensor]:
    """Tokens start .. end of every input."""
    return {name: x[:, start:end] for name, x in inputs.items()}
