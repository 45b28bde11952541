"""torch.library.opcheck on every op that takes tensors: schema, autograd, fake tensors, compiled graphs."""

from typing import Any

import pytest
import torch

import horner
from horner.nn import Mixer, Model, _tensors
from samples import SAMPLES, Sample, name_of

FORMS = ("_form",)  # return a text: there is nothing to trace
FILES = ("horner::write_tensors",)


def check(op: str, *args: Any, **options: Any) -> None:
    torch.library.opcheck(getattr(torch.ops.horner, op).default, args, options)


def with_grad(values: dict[str, Any]) -> dict[str, Any]:
    return {name: x.requires_grad_() for name, x in values.items()}


def absent(op: str) -> dict[str, None]:
    """The arguments without a default, as None."""
    arguments = getattr(torch.ops.horner, op).default._schema.arguments
    return {a.name: None for a in arguments if not a.has_default_value()}


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_op(sample: Sample) -> None:
    check(sample.op, **with_grad(sample.inputs()), **sample.everything)


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_backward(sample: Sample) -> None:
    op, inputs = f"{sample.op}_backward", sample.inputs()
    do = torch.ones_like(getattr(torch.ops.horner, sample.op)(**inputs, **sample.options)[0])
    check(op, **absent(op) | inputs | sample.options | {"do": do, "dstate": []})


def test_attention_in_place() -> None:
    sample = SAMPLES[0]
    check("attention_in_place", **sample.inputs(), **sample.everything)


def layers() -> dict[str, tuple[Any, ...]]:
    """A call of each composite op."""
    torch.manual_seed(0)
    x, tokens = torch.randn(2, 7, 16), torch.randint(11, (2, 7))
    mixer = Mixer("gla:heads=2,conv=4", 16)
    model = Model(pattern=["gla:heads=2,conv=4"], layers=1, D=16, vocabulary=11)
    ends = model._end_tensors()
    block = [_tensors.get(model.layer_0, row.name) for row in model.layer_0._rows]
    return {
        "mixer_forward": (mixer.spec, x, mixer._tensor_list()),
        "mixer_map": (mixer.spec, x, mixer._tensor_list()),
        "model_begin": (model.options_json, tokens, ends),
        "block_forward": (model.options_json, 0, x, None, block),
        "model_end": (model.options_json, x, None, ends),
        "model_loss": (model.options_json, x.flatten(0, 1), tokens.flatten(), ends),
        "short_conv": (x, torch.randn(16, 4), torch.randn(16), torch.randn(2, 3, 16), True),
    }


@pytest.mark.parametrize("op", layers())
def test_layer(op: str) -> None:
    check(op, *layers()[op])


def test_every_op_is_checked() -> None:
    checked = {f"horner::{op}{suffix}" for op in {s.op for s in SAMPLES} for suffix in ("", "_backward")}
    checked |= {f"horner::{op}" for op in layers()} | {"horner::attention_in_place"}
    takes_tensors = set()
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("horner::") and any("Tensor" in str(a.type) for a in schema.arguments):
            takes_tensors.add(schema.name)
    takes_tensors = {name for name in takes_tensors if not name.endswith(FORMS)}
    assert takes_tensors == checked | set(FILES)
