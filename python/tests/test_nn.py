"""horner.nn: every mixer of the list as a torch.nn.Module, and whole models."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

import horner
from horner.nn import Mixer, Model
from horner.nn._list import mixers, spec_of

D = 16
SPECS = [row.name + (f":{row.variants[0]}" if row.variants[0] else "") for row in mixers()]
VARIANTS = [f"{row.name}:{v}" if v else row.name for row in mixers() for v in row.variants]
every_mixer = pytest.mark.parametrize("spec", SPECS)
every_variant = pytest.mark.parametrize("spec", VARIANTS)
PATTERN = ["gla:heads=2", "window:heads=2,window=3", "mamba2:head=8,state=4"]


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    """One limit of recompilations for each test."""
    torch._dynamo.reset()


def tokens(B: int = 2, T: int = 7, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(B, T, D, dtype=dtype, generator=torch.Generator().manual_seed(1))


def small_model(**more: Any) -> Model:
    return Model(**{"pattern": PATTERN, "layers": 3, "D": D, "vocabulary": 11, "seed": 2} | more)


def ids(B: int = 2, T: int = 9) -> Tensor:
    return torch.randint(11, (B, T), generator=torch.Generator().manual_seed(1))


def close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# ---- made from the list -----------------------------------------------------------------------


@every_mixer
def test_a_class_is_its_spec(spec: str) -> None:
    name, _, text = spec.partition(":")
    row = next(row for row in mixers() if row.name == name)
    by_name = {s.name: s for s in row.settings}
    settings = {by_name[k].keyword: v for k, v in (item.split("=") for item in filter(None, text.split(",")))}
    layer = getattr(horner.nn, row.title)(D, seed=3, **settings)
    assert layer.spec == spec_of(name, row.settings, settings) and row.equation in type(layer).__doc__
    other = Mixer(spec, D, seed=3)
    assert list(layer.state_dict()) == list(other.state_dict())
    assert torch.equal(layer(tokens()), other(tokens()))


def test_keywords_are_unique_and_have_their_defaults() -> None:
    for row in mixers():
        words = [s.keyword for s in row.settings]
        assert len(set(words)) == len(words) and not {"D", "seed", "device", "dtype"} & set(words)
        assert Mixer(row.name, 64, device="meta").options is not None


def test_settings_of_every_type_go_through() -> None:
    layer = horner.nn.Softmax(D, heads=2, qk_norm=True, clamp=5.0, position_kind="none")
    assert layer.spec == "softmax:heads=2,qk_norm=true,clamp=5.0,position.kind=none"
    assert layer.options["clamp"] == 5 and layer.options["position"]["kind"] == "none"
    assert horner.nn.Softmax(D, clamp=None).options["clamp"] is None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: horner.nn.GLA(D, head=2), "'head'.*heads"),
        (lambda: horner.nn.GLA(D, heads=3), "heads"),
        (lambda: Mixer("gl", D), "gla"),
        (lambda: Mixer("gla", 0), "width D"),
        (lambda: horner.nn.GLA(D)(torch.zeros(2, D)), "x must be"),
        (lambda: horner.nn.GLA(D)(torch.zeros(2, 3, 8)), "q_weight must be|must be"),
        (lambda: horner.nn.GLA(D)(torch.zeros(0, 3, D)), r"\[gla\] x must be .* B and T at least 1, got \[0, 3, 16\]"),
        (lambda: horner.nn.MetaLA(D)(torch.ones(2, 3, D, dtype=torch.int64)), r"\[metala\] x must be floating point, got Long"),
        (lambda: horner.nn.GLA(D)(torch.zeros(2, 3, D).to(torch.complex64)), r"\[gla\] x must be floating point"),
        (lambda: horner.nn.GLA(D)(torch.zeros(2, 3, D).double()), r"\[gla\] x must have the dtype of the layer, Float, got Double"),
        (lambda: horner.nn.GLA(D).map(torch.zeros(2, 3, D).bfloat16()), r"\[gla\] x must have the dtype of the layer"),
        (lambda: horner.nn.Softmax(D)(torch.zeros(2, 3, D, device="meta")), r"\[softmax\] x is on meta, .*_weight on cpu"),
        (lambda: small_model(layer=3), "layers"),
        (lambda: small_model()(torch.zeros(2, 3)), "whole numbers"),
        (lambda: small_model().loss(ids()[:, 1:], ids()), r"hidden must be \(n,D\) and targets \(n\), got \[16, 16\] and \[18\]"),
        (lambda: small_model()(ids(), [], lengths=torch.tensor([9, 5])), "lengths have no state"),
        (lambda: small_model()(ids(), [[], []]), "a state has 3 lists, one for each layer, got 2"),
        (lambda: horner.nn.GLA(D)(tokens(), window=3), r"\[gla\] has no window to change"),
        (lambda: horner.nn.GLA(16.5), "cannot be interpreted as an integer"),
    ],
)
def test_mistakes_are_one_line(make: Any, says: str) -> None:
    with pytest.raises((RuntimeError, TypeError, ValueError), match=says) as error:
        make()
    assert "\n" not in str(error.value)


# ---- numbers ----------------------------------------------------------------------------------


def test_the_weights_come_from_the_seed_or_from_torch() -> None:
    assert torch.equal(horner.nn.GLA(D, seed=1).q_weight, horner.nn.GLA(D, seed=1).q_weight)
    assert not torch.equal(horner.nn.GLA(D, seed=1).q_weight, horner.nn.GLA(D, seed=2).q_weight)
    torch.manual_seed(5)
    first = horner.nn.GLA(D).q_weight
    assert not torch.equal(first, horner.nn.GLA(D).q_weight)
    torch.manual_seed(5)
    assert torch.equal(first, horner.nn.GLA(D).q_weight)


@every_variant
def test_split_anywhere(spec: str) -> None:
    layer = Mixer(spec, D, seed=1, dtype=torch.float64)
    x = tokens(dtype=torch.float64)
    whole = layer(x)
    assert whole.shape == x.shape
    if not layer.causal:
        with pytest.raises((RuntimeError, ValueError), match="both directions"):
            layer(x, layer.step(x[:, 0], [torch.zeros(2, 1)])[1])
        return
    first, state = layer(x[:, :3], [])
    second, state = layer(x[:, 3:6], state)
    last, state = layer.step(x[:, 6], state)
    close(torch.cat([first, second, last[:, None]], 1), whole, 1e-9)
    assert all(part.shape[0] == 2 for part in state)


@every_mixer
def test_gradcheck(spec: str) -> None:
    layer = Mixer(spec, D, seed=1, dtype=torch.float64)
    x = tokens(1, 4, torch.float64).requires_grad_()
    parameters = dict(layer.named_parameters())

    def function(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(parameters, values, strict=True)), (x,))

    values = tuple(p.detach().clone().requires_grad_() for p in parameters.values())
    assert torch.autograd.gradcheck(function, (x, *values), fast_mode=True, atol=1e-5)


def test_a_step_runs_the_hooks_of_forward() -> None:
    layer = horner.nn.GLA(D, heads=2)
    seen: list[int] = []
    layer.register_forward_pre_hook(lambda module, given: seen.append(given[0].shape[1]))
    layer.step(tokens()[:, 0], [])
    assert seen == [1]


def test_map_is_the_output_for_one_hot_values() -> None:
    layer = horner.nn.Softmax(D, heads=2)
    weights = layer.map(tokens())
    assert weights.shape == (2, 2, 7, 7)
    close(weights.sum(-1), torch.ones(2, 2, 7))
    assert torch.equal(weights, weights.tril())


def test_packed_batch() -> None:
    layer = horner.nn.GLA(D, heads=2, conv=4)
    x = tokens(1, 9)
    y, state = layer(x, [], torch.tensor([0, 4, 9]))
    close(y, torch.cat([layer(x[:, :4]), layer(x[:, 4:])], 1))
    assert all(part.shape[0] == 2 for part in state)


# ---- as any other torch.nn.Module ---------------------------------------------------------------


@every_mixer
def test_a_step_of_an_optimiser_lowers_the_loss(spec: str) -> None:
    layer, x = Mixer(spec, D, seed=1), tokens()
    optimiser = torch.optim.AdamW(layer.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        loss = (layer(x) - x).square().mean()
        optimiser.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in layer.parameters())
        optimiser.step()
        losses.append(loss.item())
    assert losses[2] < losses[0]


@every_mixer
def test_state_dict_deepcopy_pickle_and_to(spec: str) -> None:
    layer, x = Mixer(spec, D, seed=1), tokens()
    y = layer(x)
    fresh = Mixer(spec, D, seed=2)
    fresh.load_state_dict(layer.state_dict())
    saved = io.BytesIO()
    torch.save(layer, saved)
    saved.seek(0)
    for other in (fresh, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(saved, weights_only=False)):
        assert torch.equal(other(x), y)
    double = copy.deepcopy(layer).to(torch.float64)
    assert double(x.double()).dtype == torch.float64
    close(double(x.double()).float(), y, 1e-4)


def test_classes_are_pickled_by_their_name() -> None:
    layer = pickle.loads(pickle.dumps(horner.nn.GLA(D, heads=2)))
    assert type(layer) is horner.nn.GLA and layer.spec == "gla:heads=2"


@every_mixer
def test_autocast(spec: str) -> None:
    layer, x = Mixer(spec, D, seed=1), tokens()
    exact = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert y.dtype in (torch.bfloat16, torch.float32) and not torch.equal(y.float(), exact)
    assert (y.float() - exact).abs().max() <= 0.05 * exact.abs().max() + 1e-3
    y.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())


@every_mixer
def test_meta_device_then_materialised(spec: str) -> None:
    with torch.device("meta"):
        layer = Mixer(spec, D)
    assert all(p.is_meta for p in layer.parameters())
    y = layer(tokens().to("meta"))
    assert y.is_meta and y.shape == (2, 7, D)
    layer.to_empty(device="cpu").reset_parameters(seed=1)
    assert torch.equal(layer(tokens()), Mixer(spec, D, seed=1)(tokens()))


@every_mixer
def test_compiled_is_eager(spec: str) -> None:
    layer, x = Mixer(spec, D, seed=1), tokens()
    other = copy.deepcopy(layer)
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    y, z = layer(x), compiled(x)
    close(z, y)
    y.square().sum().backward()
    z.square().sum().backward()
    for p, q in zip(layer.parameters(), other.parameters(), strict=True):
        close(q.grad, p.grad, 1e-3)


@every_mixer
def test_compiled_with_a_state(spec: str) -> None:
    layer, x = Mixer(spec, D, seed=1), tokens()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        expected, before = layer(x, [])
        for T in (1, 2, 3):  # lengths change: dynamic shapes are tried and refused, then the graph is made again
            state = [part.clone() for part in before]
            close(compiled(x[:, :T], state)[0], layer(x[:, :T], before)[0])


@every_mixer
def test_export(spec: str) -> None:
    layer, x = Mixer(spec, D, seed=1).eval(), tokens()
    program = torch.export.export(layer, (x,))
    close(program.module()(x), layer(x))
    names = {str(node.target) for node in program.run_decompositions().graph.nodes if node.op == "call_function"}
    assert not any(name.startswith("horner.mixer") for name in names)


@every_mixer
def test_torch_func(spec: str) -> None:
    layer, x = Mixer(spec, D, seed=1, dtype=torch.float64), tokens(dtype=torch.float64)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(layer, parameters, (x[None],)).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    layer(x[1:]).square().sum().backward()
    for name, p in layer.named_parameters():
        close(each[name][1], p.grad, 1e-8)


@pytest.mark.parametrize("spec", [spec for spec in SPECS if Mixer(spec, D).causal])
def test_vmap_over_states(spec: str) -> None:
    layer = Mixer(spec, D, seed=1, dtype=torch.float64)
    x = torch.stack([tokens(dtype=torch.float64), tokens(dtype=torch.float64).flip(0)])
    with torch.no_grad():
        states = torch.func.vmap(lambda x: layer(x[:, :5], [])[1])(x)
        many = torch.func.vmap(lambda x, state: layer(x[:, 5:], state)[0])(x, states)
        close(many, torch.stack([layer(one)[:, 5:] for one in x]), 1e-8)


# ---- models -----------------------------------------------------------------------------------


def test_model_names_are_those_of_a_checkpoint() -> None:
    names = list(small_model().state_dict())
    assert {"embedding", "layer_0.mixer.q_weight", "layer_2.mlp_down_weight", "norm_weight", "head_weight"} <= set(names)


@pytest.mark.parametrize("positions", [0, 12])
def test_model_in_pieces(positions: int) -> None:
    model = small_model(positions=positions).double()
    whole = model(ids())
    first, state = model(ids()[:, :4], [])
    second, state = model(ids()[:, 4:], state)
    assert whole.shape == (2, 9, 11)
    close(torch.cat([first, second], 1), whole, 1e-9)


def test_model_loss_is_cross_entropy() -> None:
    model = small_model(logit_cap=3.0)
    targets = ids().roll(-1, 1)
    targets[:, -1], targets[0, 0] = -1, -100  # any negative one is left out
    expected = torch.nn.functional.cross_entropy(model(ids()).flatten(0, 1), targets.flatten().clamp_min(-1), ignore_index=-1)
    close(model.loss(ids(), targets), expected)
    compiled = torch.compile(model.loss, fullgraph=True, backend="aot_eager")
    close(compiled(ids(), targets), expected)


def test_model_with_padding() -> None:
    lengths = torch.tensor([9, 5])
    both = small_model(pattern=["linear:heads=2,causal=false"], classes=3).double()
    y = both(ids(), lengths=lengths)
    close(y[1:], both(ids()[1:, :5]), 1e-9)
    close(y[:1], both(ids()[:1]), 1e-9)


def test_model_compiled_exported_copied_meta() -> None:
    model = small_model()
    y = model(ids())
    close(torch.compile(model, fullgraph=True, backend="aot_eager")(ids()), y)
    close(torch.export.export(model.eval(), (ids(),)).module()(ids()), y)
    assert torch.equal(copy.deepcopy(model)(ids()), y)
    assert torch.equal(pickle.loads(pickle.dumps(model))(ids()), y)
    with torch.device("meta"):
        empty = small_model(seed=None)
    assert empty(ids().to("meta")).shape == y.shape
    empty.to_empty(device="cpu").reset_parameters(seed=2)
    assert torch.equal(empty(ids()), y)


def test_a_mixer_of_a_model_is_not_replaced_in_silence() -> None:
    model = small_model(pattern=["softmax:heads=2"])
    model.layer_0.mixer = horner.nn.Taylor(D, heads=2)  # the same names and shapes
    with pytest.raises(ValueError, match=r"layer_0 runs softmax:heads=2: its mixer cannot be replaced") as error:
        model(ids())
    assert "\n" not in str(error.value)


def test_dropout_only_in_training() -> None:
    model = small_model(dropout=0.5)
    assert not torch.equal(model(ids()), model(ids()))
    model.eval()
    assert torch.equal(model(ids()), model(ids()))
