"""The committed goldens are what the equations give, and the ops give the goldens."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

import horner
from samples import OPS

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ("q", "k", "v", "g", "beta", "state0")


def goldens(op: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Tensor]]]:
    """Every case of an op: its name, options and tensors."""
    with safe_open(ROOT / f"src/ops/goldens/{op}.safetensors", "pt") as file:
        for case, text in sorted(file.metadata().items()):
            tensors = {}
            for name in file.keys():
                if name.startswith(case + "."):
                    value, name = file.get_tensor(name), name.removeprefix(case + ".")
                    if name.endswith("_re_im"):
                        value, name = torch.view_as_complex(value), name.removesuffix("_re_im")
                    tensors[name] = value
            yield case, json.loads(text)["options"], tensors


CASES = [pytest.param(op, *case, id=f"{op}-{case[0]}") for op in OPS for case in goldens(op)]


def close(actual: Tensor, expected: Tensor, name: str) -> None:
    torch.testing.assert_close(
        actual, expected, rtol=1e-9, atol=1e-10, msg=lambda text: f"{name}: {text}"
    )


@pytest.mark.parametrize("script", ["goldens.py", "mixer_goldens.py", "task_goldens.py", "chat_goldens.py",
                                    "grammar_goldens.py"])
def test_goldens_are_what_the_script_computes(script: str) -> None:
    command: list[str | Path] = [sys.executable, ROOT / "tools" / script, "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("form", ["auto", "recurrent", "parallel", "chunked"])
@pytest.mark.parametrize("op, case, options, golden", CASES)
def test_op(
    op: str, case: str, options: dict[str, Any], golden: dict[str, Tensor], form: str
) -> None:
    x = {name: golden[name].requires_grad_() for name in INPUTS if name in golden}
    wanted = {"final_state": "state" in golden} | ({"log_norm": True} if "norm" in golden else {})
    arguments = x | {"state": [x["state0"]] if "state0" in x else []}
    arguments.pop("state0", None)
    result = OPS[op](**arguments, **options, **wanted, form=form, chunk=4)
    close(result.o, golden["o"], "o")
    if "norm" in golden:
        assert result.norm is not None
        close(result.norm, golden["norm"], "norm")
    if "state" in golden:
        close(result.state[0], golden["state"], "state")
    gradients = torch.autograd.grad(result.o, list(x.values()), golden["do"])
    for name, gradient in zip(x, gradients, strict=True):
        close(gradient, golden["d" + name], "d" + name)


MLSTM = {case: golden for case, _, golden in goldens("mlstm")}


@pytest.mark.parametrize("case", MLSTM)
def test_mlstm_is_linear(case: str) -> None:
    """g = f_t + m_{t-1} - m_t, k exp(i_t - m_t): to the gradient the stabiliser m is constant."""
    golden = MLSTM[case]
    names = ("q", "k", "v", "i", "f", "C0", "n0", "m0")
    x = {name: golden[name].requires_grad_() for name in names if name in golden}
    first = x["m0"] if "m0" in x else x["i"][:, 0]
    m = [first]
    for t in range(x["i"].shape[1]):
        m.append(torch.maximum(x["f"][:, t] + m[-1], x["i"][:, t]) if t or "m0" in x else first)
    now = torch.stack(m[1:], 1).detach()  # (B,T,G)
    before = torch.stack([first, *now.unbind(1)[:-1]], 1)
    g = x["f"] + before - now
    if "m0" not in x:
        g = torch.cat([torch.zeros_like(g[:, :1]), g[:, 1:]], 1)  # there is nothing to forget
    k = x["k"] * torch.exp(x["i"] - now)[..., None]
    v = torch.nn.functional.pad(x["v"], (0, 1), value=1.0)  # (B,T,G,V+1)
    state = [torch.cat([x["C0"], x["n0"][..., None]], -1)] if "C0" in x else []
    result = horner.linear(x["q"], k, v, g, state=state, final_state=True, chunk=4)
    r = x["q"].shape[2] // now.shape[2]
    floor = torch.exp(-now).repeat_interleave(r, 2)[..., None]  # (B,T,H,1)
    o = result.o[..., :-1] / torch.maximum(result.o[..., -1:].abs(), floor)
    close(o, golden["o"], "o")
    close(result.state[0], torch.cat([golden["C"], golden["n"][..., None]], -1), "state")
    close(now[:, -1], golden["m"], "m")
    gradients = torch.autograd.grad(o, list(x.values()), golden["do"])
    for name, gradient in zip(x, gradients, strict=True):
        close(gradient, golden["d" + name], "d" + name)
