"""horner.nn on a GPU: the layers compute what they compute on a CPU, by the kernels of libhorner_cuda.so, and a step is a CUDA graph."""

import pytest
import torch
from torch import Tensor

import horner
from horner.nn import Mixer, Model
from horner.nn._list import mixers

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

D = 64
SPECS = [row.name + (f":{row.variants[0]}" if row.variants[0] else "") for row in mixers()]
every_mixer = pytest.mark.parametrize("spec", SPECS)


def tokens(T: int = 21) -> Tensor:
    return torch.randn(2, T, D, generator=torch.Generator().manual_seed(1))


def error(actual: Tensor, expected: Tensor) -> float:
    return ((actual.cpu().double() - expected).norm() / expected.norm()).item()


@every_mixer
def test_layers_are_those_of_a_cpu(spec: str) -> None:
    exact, layer = Mixer(spec, D, seed=3).double(), Mixer(spec, D, seed=3, device="cuda")
    x, y = tokens().double().requires_grad_(), tokens().cuda().requires_grad_()
    expected, got = exact(x), layer(y)
    assert error(got.detach(), expected.detach()) < 1e-3
    expected.square().sum().backward()
    got.square().sum().backward()
    assert x.grad is not None and y.grad is not None
    if x.grad.norm() > 0:
        assert error(y.grad, x.grad) < 1e-2


@every_mixer
def test_text_is_read_and_written(spec: str) -> None:
    """A part at once, then token by token, under autocast: what the whole is."""
    layer = Mixer(spec, D, seed=3, device="cuda")
    if not layer.causal:
        pytest.skip("it reads both directions")
    x = tokens(40).cuda()
    exact = Mixer(spec, D, seed=3).double()(x.cpu().double())
    plain = Mixer(spec, D, seed=3).bfloat16()(x.cpu().bfloat16())
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        y, state = layer(x[:, :30], [])
        parts = [y]
        for t in range(30, 40):
            y, state = layer(x[:, t : t + 1], state)
            parts.append(y)
    assert error(torch.cat(parts, 1), exact) < 3 * error(plain, exact) + 1e-2


def test_a_step_is_a_graph_of_our_kernels() -> None:
    model = Model(pattern=["softmax:heads=4", "gla:heads=4", "mamba2"], layers=3, D=D, vocabulary=256, device="cuda", seed=1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-2, device="cuda"), fused=True, capturable=True)
    ids = torch.randint(256, (4, 65), generator=torch.Generator().manual_seed(1)).cuda()
    losses = torch.zeros(1, device="cuda")

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = model.loss(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimiser.step()
        losses.copy_(loss.detach())

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
        first = losses.item()
    torch.cuda.current_stream().wait_stream(beside)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    kernels = " ".join(event.key for event in profile.key_averages())
    for name in ("AddNormCall", "SwigluCall", "rotate", "head_loss_kernel", "Conv"):
        assert name in kernels, f"{name} is not among {kernels}"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(50):
        graph.replay()
    assert losses.item() < first / 2


def test_an_op_has_its_kernels() -> None:
    q, k, v = torch.randn(3, 2, 128, 4, 64, device="cuda", dtype=torch.bfloat16).unbind()
    assert horner.form(horner.linear, q, k, v) == "chunked kernel"
