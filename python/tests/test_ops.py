"""The ops as PyTorch sees them: schema, autograd, compile, autocast, packed batches, errors."""

import inspect
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

import horner
from samples import G, OPS, SAMPLES, Sample, name_of, part, tensors

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
every_op = pytest.mark.parametrize("op", OPS)
causal_samples = pytest.mark.parametrize("sample", [s for s in SAMPLES if s.causal], ids=name_of)


def close(actual: Tensor | list[Tensor], expected: Tensor | list[Tensor]) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def with_grad(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}


def loss(result: horner.Result) -> Tensor:
    """A number that depends on every output, each entry with a weight of its own."""
    total = torch.zeros((), dtype=torch.float64)
    for x in tensors(result):
        flat = torch.view_as_real(x).flatten() if x.is_complex() else x.flatten()
        total = total + (flat.double() * torch.linspace(-1, 2, flat.numel())).sum()
    return total


def gradients(result: horner.Result, inputs: dict[str, Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(loss(result), list(inputs.values())))


# ---- one truth: the schema --------------------------------------------------------------------


@every_op
@pytest.mark.parametrize("suffix", ["", "_form"])
def test_signature_is_the_schema(op: str, suffix: str) -> None:
    schema = getattr(torch.ops.horner, op + suffix).default._schema
    expected = []
    for argument in schema.arguments:
        optional = argument.has_default_value()
        default = argument.default_value if optional else inspect.Parameter.empty
        expected.append((argument.name, argument.kwarg_only, default))
    actual = []
    for name, parameter in inspect.signature(OPS[op]).parameters.items():
        if name == "check":  # of this thread, not of the schema
            continue
        default = [] if parameter.default == () else parameter.default
        actual.append((name, parameter.kind is inspect.Parameter.KEYWORD_ONLY, default))
    assert actual == expected


def test_every_op_has_its_function() -> None:
    names = torch._C._dispatch_get_all_op_names()
    forms = {name for name in names if name.startswith("horner::") and name.endswith("_form")}
    assert forms == {f"horner::{op}_form" for op in OPS} and set(OPS) <= set(horner.__all__)


# ---- PyTorch's own checks ---------------------------------------------------------------------


@every_sample
def test_gradcheck(sample: Sample) -> None:
    inputs = with_grad(sample.inputs(B=1, T=5))

    def function(*values: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(inputs, values, strict=True))
        return tuple(tensors(sample.call(**named, **sample.differentiable)))

    assert torch.autograd.gradcheck(function, tuple(inputs.values()), fast_mode=True)


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if s.causal and not s.exponential], ids=name_of
)
def test_gradcheck_of_the_state(sample: Sample) -> None:
    inputs = sample.inputs(B=1, T=6)
    before = sample.call(**part(inputs, 0, 3), **sample.everything).state

    def function(*values: Tensor) -> tuple[Tensor, ...]:
        left = list(values)
        state = [x if x.dtype == torch.int64 else left.pop(0) for x in before]
        return tuple(tensors(sample.call(**part(inputs, 3, 6), state=state, **sample.everything)))

    floating = tuple(x.clone().requires_grad_() for x in before if x.dtype != torch.int64)
    assert torch.autograd.gradcheck(function, floating, fast_mode=True)


@every_sample
def test_compiled_is_eager(sample: Sample) -> None:
    compiled = torch.compile(sample.call, fullgraph=True, backend="aot_eager")
    eager, inputs = with_grad(sample.inputs()), with_grad(sample.inputs())
    expected = sample.call(**eager, **sample.everything)
    actual = compiled(**inputs, **sample.everything)
    close(tensors(actual), tensors(expected))
    close(gradients(actual, inputs), gradients(expected, eager))


@every_sample
def test_outputs_are_laid_out_as_a_traced_graph_expects(sample: Sample) -> None:
    inputs = with_grad({name: x.transpose(1, 2).clone().transpose(1, 2) for name, x in sample.inputs().items()})
    o, state, norm = getattr(torch.ops.horner, sample.op)(**inputs, **sample.everything)
    assert all(x.is_contiguous() for x in [o, *state, norm])


@every_sample
@pytest.mark.parametrize("T", [1, 7])
def test_outputs_have_memory_of_their_own(sample: Sample, T: int) -> None:
    """Of the op and of its backward, as torch demands of custom ops: none shares memory with an input or another output."""
    op = getattr(torch.ops.horner, sample.op)
    backward = getattr(torch.ops.horner, sample.op + "_backward")

    def memory(list_: list[Tensor]) -> list[int]:
        return [x.untyped_storage().data_ptr() for x in list_ if x.numel()]

    inputs = sample.inputs(T=T)
    state = op(**inputs, **sample.everything)[1] if sample.causal else None
    o, after, norm = op(**inputs, state=state, **sample.everything)
    dnorm = torch.ones_like(norm) if norm.numel() else None
    dstate = [torch.ones_like(x) if x.is_floating_point() else None for x in after]
    do = torch.ones_like(o)
    absent = {a.name: None for a in backward.default._schema.arguments if not a.has_default_value()}
    both = absent | inputs | sample.everything | {"state": state, "do": do}
    gradients_of_all = backward(**both | {"dnorm": dnorm, "dstate": dstate})
    from_o_alone = backward(**both | {"dstate": [None] * len(after)})
    given = [*inputs.values(), *(state or []), do, *(x for x in [*dstate, dnorm] if x is not None)]
    for outputs in ([o, norm, *after], gradients_of_all, from_o_alone):
        found = memory(outputs)
        assert len(set(found)) == len(found) and not set(found) & set(memory(given))


# ---- attention's cache ------------------------------------------------------------------------


CACHES = [(0, 0, 3), (7, 0, 3), (7, 2, 3), (0, 0, 1)]
caches = pytest.mark.parametrize(("window", "sinks", "heads"), CACHES)


def after_25_tokens(
    window: int, sinks: int, heads: int
) -> tuple[Tensor, list[Tensor], dict[str, Any]]:
    """q, k and v of 20 more tokens, the state before them, and the options of all calls."""
    x = torch.randn(3, 2, 45, heads, 64, dtype=torch.float64)
    options = {"window": window, "sinks": sinks, "final_state": True, "log_norm": True}
    return x[:, :, 25:], horner.attention(*x[:, :, :25], **options).state, options


@caches
def test_a_decode_loop_copies_no_cache(window: int, sinks: int, heads: int) -> None:
    def memory(state: list[Tensor]) -> list[int]:
        return [x.untyped_storage().data_ptr() for x in [*state[:2], *state[3:]]]

    x, state, options = after_25_tokens(window, sinks, heads)
    first = memory(state)
    for q, k, v in x.split(1, dim=2):
        with torch.profiler.profile(profile_memory=True) as profile:
            state = horner.attention(q, k, v, state, **options).state
        assert memory(state) == first
        assert sum(event.self_cpu_memory_usage for event in profile.events()) < state[0].nbytes


@caches
def test_a_compiled_step_returns_memory_of_its_own(window: int, sinks: int, heads: int) -> None:
    compiled = torch.compile(horner.attention, fullgraph=True, backend="aot_eager", dynamic=True)
    x, state, options = after_25_tokens(window, sinks, heads)
    for q, k, v in x[:, :, :3].split(1, dim=2):
        expected = horner.attention(q, k, v, state, **options)
        actual = compiled(q, k, v, state, **options)
        close(tensors(actual), tensors(expected))
        old = {part.untyped_storage().data_ptr() for part in state}
        assert all(part.is_contiguous() for part in actual.state)
        assert not old & {part.untyped_storage().data_ptr() for part in actual.state}
        state = expected.state


def test_a_copied_step_copies_the_cache_once() -> None:
    """What a compiled graph calls: its state has memory of its own, without room, and nothing is copied twice."""
    x = torch.randn(3, 1, 2001, 2, 64)
    state = torch.ops.horner.attention(*x[:, :, :2000], final_state=True)[1]
    with torch.profiler.profile(profile_memory=True) as profile:
        after = torch.ops.horner.attention(*x[:, :, 2000:], state, final_state=True)[1]
    taken = sum(max(0, event.self_cpu_memory_usage) for event in profile.events())
    assert taken < 1.1 * (after[0].nbytes + after[1].nbytes)
    assert all(part.untyped_storage().nbytes() == part.nbytes for part in after)


@every_sample
def test_plain_forms_have_second_derivatives(sample: Sample) -> None:
    inputs = with_grad(sample.inputs(B=1, T=3))

    def function(*values: Tensor) -> Tensor:
        named = dict(zip(inputs, values, strict=True))
        return sample.call(**named, **sample.options, form="recurrent").o

    assert torch.autograd.gradgradcheck(function, list(inputs.values()))


@every_op
def test_backward_does_not_run_the_forward_again(op: str) -> None:
    """Autograd goes through the form's own graph: no second call of the op shows up in a profile."""
    sample = next(s for s in SAMPLES if s.op == op)
    inputs = with_grad(sample.inputs())
    result = sample.call(**inputs, **sample.options)
    with torch.profiler.profile() as profile:
        result.o.abs().sum().backward()
    assert not [event.name for event in profile.events() if event.name.startswith("horner::")]


@pytest.mark.parametrize("sample", [s for s in SAMPLES if not s.complex], ids=name_of)
def test_autocast_leaves_the_decay_in_fp32(sample: Sample) -> None:
    inputs = with_grad(sample.inputs(dtype=torch.float32))
    low = {name: x.detach() for name, x in inputs.items()}
    low |= {name: low[name].bfloat16() for name in ("q", "k", "v") if name in low}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = sample.call(**inputs, **sample.everything)
    expected = sample.call(**low, **sample.everything)
    assert actual.o.dtype == torch.bfloat16
    for x, y in zip(tensors(actual), tensors(expected), strict=True):
        assert x.dtype == y.dtype and torch.equal(x, y)
    assert all(dx.dtype == torch.float32 for dx in gradients(actual, inputs))


# ---- forms, states, packed batches ------------------------------------------------------------


@every_sample
def test_auto_says_what_it_runs(sample: Sample) -> None:
    inputs = sample.inputs()
    form = horner.form(sample.call, **inputs, **sample.everything)
    assert form in ("recurrent", "parallel", "chunked", "step")
    named = sample.call(**inputs, **sample.everything, form=form)
    auto = sample.call(**inputs, **sample.everything)
    assert all(map(torch.equal, tensors(auto), tensors(named)))
    assert horner.form(sample.call, **inputs, **sample.options, form="recurrent") == "recurrent"


@causal_samples
def test_outputs_are_there_when_asked_for(sample: Sample) -> None:
    inputs = sample.inputs()
    bare, full = sample.call(**inputs, **sample.options), sample.call(**inputs, **sample.everything)
    assert bare.state == [] and bare.norm is None
    assert full.state and all(x.shape[0] == 2 for x in full.state)
    assert (full.norm is not None) == sample.has_norm
    assert full.norm is None or full.norm.shape == inputs["q"].shape[:3]
    close(full.o, bare.o)


@causal_samples
def test_split_anywhere(sample: Sample) -> None:
    inputs = sample.inputs(T=7)
    whole = sample.call(**inputs, **sample.everything)
    for s in range(1, 7):
        first = sample.call(**part(inputs, 0, s), **sample.everything)
        second = sample.call(**part(inputs, s, 7), state=first.state, **sample.everything)
        close(torch.cat([first.o, second.o], 1), whole.o)
        close(second.state, whole.state)


@every_sample
def test_packed_batch_is_separate_sequences(sample: Sample) -> None:
    inputs = with_grad(sample.inputs(B=1, T=12))
    ends = [0, 3, 4, 12]
    packed = sample.call(**inputs, cu_seqlens=torch.tensor(ends), **sample.options)
    separate = []
    for start, end in zip(ends, ends[1:], strict=False):
        separate.append(sample.call(**part(inputs, start, end), **sample.options).o)
    expected = horner.Result(torch.cat(separate, 1), [], None)
    close(packed.o, expected.o)
    close(gradients(packed, inputs), gradients(expected, inputs))


@causal_samples
def test_packed_batch_carries_states(sample: Sample) -> None:
    first, second, third = (sample.inputs(B=1, T=T, seed=T) for T in (3, 5, 4))
    joined = {name: torch.cat([first[name], second[name]], 1) for name in first}
    states = sample.call(
        **joined, cu_seqlens=torch.tensor([0, 3, 8], dtype=torch.int32), **sample.everything
    ).state
    assert all(x.shape[0] == 2 for x in states)
    # Sequence 0 goes on with `third`, sequence 1 with its first three tokens.
    more = {name: torch.cat([x, x[:, :3]], 1) for name, x in third.items()}
    packed = sample.call(
        **more, state=states, cu_seqlens=torch.tensor([0, 4, 7]), **sample.everything
    )
    for start, row, count in ((0, first, 4), (4, second, 3)):
        alone = {name: torch.cat([row[name], third[name][:, :count]], 1) for name in row}
        expected = sample.call(**alone, **sample.options).o[:, -count:]
        close(packed.o[:, start : start + count], expected)


# ---- mistakes ---------------------------------------------------------------------------------


def refused(sample: Sample, inputs: dict[str, Tensor], names: str, **options: Any) -> None:
    """The call raises one line that names the op and what is wrong."""
    with pytest.raises((RuntimeError, ValueError), match=names) as error:
        sample.call(**inputs, **(sample.options | options))
    text = str(error.value)
    assert sample.op in text and "\n" not in text, text


@every_sample
def test_wrong_tensors_are_refused(sample: Sample) -> None:
    inputs = sample.inputs()
    for name, x in inputs.items():
        wrong = [x[0], torch.zeros(x.shape, dtype=torch.int64)]
        if name != next(iter(inputs)):  # the first tensor is what the others are compared with
            wrong += [x[:1], x[:, :-1]]
            heads = torch.cat([x, x], 2)[:, :, :3]
            refused(sample, inputs | {name: heads}, rf"\b({name}|k)\b")  # k and v disagree
        for value in wrong:
            refused(sample, inputs | {name: value}, rf"\b{name}\b")


@every_sample
def test_wrong_options_are_refused(sample: Sample) -> None:
    inputs = sample.inputs()
    refused(sample, inputs, "form", form="quick")
    refused(sample, inputs, "chunk", chunk=0)
    refused(sample, inputs, "packed batch", cu_seqlens=torch.tensor([0, 7]))  # B is 2
    one = sample.inputs(B=1)
    for ends in ([0, 6], [1, 7], [0, 5, 3, 7]):
        refused(sample, one, "cu_seqlens", cu_seqlens=torch.tensor(ends))
    refused(sample, inputs, "state", state=[torch.zeros(3, G, 1)])


@pytest.mark.parametrize(
    "op, options, names",
    [
        ("attention", {"window": -1}, "window"),
        ("attention", {"sinks": -1}, "sinks"),
        ("power", {"order": -1}, "order"),
        ("power", {"order": 3}, "odd"),
        ("power", {"coefficients": [1.0, 1.0]}, "coefficients"),
        ("power", {"decay": "within"}, "decay"),
        ("power", {"norm": "l2"}, "norm"),
        ("power", {"norm": "none", "log_norm": True}, "norm"),
        ("linear", {"norm": "l2"}, "norm"),
        ("linear", {"log_norm": True}, "norm"),
    ],
)
def test_options_of_one_op_are_refused(op: str, options: dict[str, Any], names: str) -> None:
    sample = Sample(op, "plain")
    refused(sample, sample.inputs(), names, **options)


# ---- checks of numbers ------------------------------------------------------------------------


def broken(op: str, name: str, place: tuple[int, ...], value: float, **options: Any) -> str:
    """What check=True says about one number."""
    sample = next(s for s in SAMPLES if s.op == op and name in s.inputs())
    inputs = sample.inputs()
    inputs[name][place] = value
    settings = sample.options | options
    sample.call(**inputs, **settings, check=False)
    sample.call(**inputs, **settings)
    with pytest.raises(RuntimeError) as error:
        sample.call(**inputs, **settings, check=True)
    return str(error.value)


def test_check_names_the_place() -> None:
    assert broken("linear", "g", (1, 3, 0), 0.25) == (
        "[linear] g is a log-decay and must be at most 0, got 0.25 at b,t,h = (1,3,0)"
    )
    assert broken("scan", "g", (0, 2, 1, 1), 0.5).endswith("got 0.5 at b,t,h,k = (0,2,1,1)")
    assert "beta must lie in [0, 2], got 3 at b,t,h = (1,0,1)" in broken("delta", "beta", (1, 0, 1), 3.0)
    assert "the norm of k must be at most 1" in broken("delta", "k", (0, 1, 1, 0), 4.0)


def test_check_finds_a_sum_of_weights_that_is_not_positive() -> None:
    q, k = torch.ones(1, 3, 1, 2), torch.ones(1, 3, 1, 2)
    k[0, 0] = -1
    with pytest.raises(RuntimeError, match=r"the sum of weights must be above 0, got -2 at b,t,h = \(0,0,0\)"):
        horner.linear(q, k, q, norm="sum", check=True)
    horner.linear(q, k.abs(), q, norm="sum", check=True)
    first = horner.linear(q, k.abs(), q, norm="sum", final_state=True)
    horner.linear(q, -k.abs()[:, :1].expand(1, 3, 1, 2) / 9, q, state=first.state, norm="sum", check=True)


def test_the_environment_turns_checks_on() -> None:
    """For every call and for the calls inside of layers; check=False is stronger."""
    program = (
        "import torch, horner\n"
        "x = torch.ones(1, 2, 1, 2)\n"
        "horner.linear(x, x, x, x[..., 0], check=False)\n"
        "layer = horner.nn.DeltaNet(8, heads=2)\n"
        "layer(torch.randn(1, 3, 8))\n"
        "horner.linear(x, x, x, x[..., 0])\n"
    )
    for value, says in (("1", "[linear] g is a log-decay and must be at most 0, got 1 at b,t,h = (0,0,0)"), ("0", "")):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | {"HORNER_CHECK": value}
        )
        assert (done.returncode != 0) == bool(says) and says in done.stderr, done.stderr


@every_sample
def test_check_accepts_the_samples(sample: Sample) -> None:
    unchecked = sample.call(**sample.inputs(), **sample.everything)
    checked = sample.call(**sample.inputs(), **sample.everything, check=True)
    assert all(map(torch.equal, tensors(checked), tensors(unchecked)))


# ---- torch.func -------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [s for s in SAMPLES if not s.complex], ids=name_of)
def test_torch_func(sample: Sample) -> None:
    inputs = sample.inputs()

    def total(inputs: dict[str, Tensor]) -> Tensor:
        return sample.call(**inputs, **sample.options).o.square().sum()

    leaves = with_grad(inputs)
    expected = torch.autograd.grad(total(leaves), list(leaves.values()))
    close(list(torch.func.grad(total)(inputs).values()), list(expected))
    many = {name: torch.stack([x, x.flip(0)]) for name, x in inputs.items()}
    rows = torch.func.vmap(lambda one: sample.call(**one, **sample.options).o)(many)
    close(rows[1], sample.call(**{n: x[1] for n, x in many.items()}, **sample.options).o)
    each = torch.func.vmap(torch.func.grad(total))(many)
    close([x[0] for x in each.values()], list(expected))


def test_torch_func_refuses_in_one_line() -> None:
    q = torch.randn(2, 1, 4, 1, 2)
    with pytest.raises(RuntimeError, match="torch.func takes no packed batch"):
        torch.func.vmap(lambda x: horner.linear(x, x, x, cu_seqlens=torch.tensor([0, 2, 4])).o)(q)
