"""The tensors of a layer: parameters and buffers of the module, under the names that a checkpoint has."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Row:
    """One tensor of a layout, as the library describes it."""

    name: str  # "q_weight", "layer_0.mixer.q_weight"
    sizes: tuple[int, ...]
    double: bool  # held in fp64 whatever the layer's dtype
    trained: bool  # a parameter; else a buffer


def rows_of(layout: list[dict[str, Any]]) -> tuple[Row, ...]:
    return tuple(Row(r["name"], tuple(r["sizes"]), r["double"], r["trained"]) for r in layout)


def new_seed() -> int:
    """A seed from torch's generator, so that torch.manual_seed decides the weights."""
    return int(torch.randint(2**63 - 1, (), device="cpu").item())


def get(module: nn.Module, name: str) -> Tensor:
    owner: Any = module
    for part in name.split("."):
        owner = getattr(owner, part)
    tensor: Tensor = owner
    return tensor


def own(
    module: nn.Module,
    rows: Sequence[Row],
    initial: Callable[[], Sequence[Tensor]],
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> None:
    """Registers the tensors in the submodules that exist. On the meta device nothing is drawn."""
    place = torch.device(torch.get_default_device() if device is None else device)
    kind = torch.get_default_dtype() if dtype is None else dtype
    with torch.device("cpu"):
        values = None if place.type == "meta" else initial()
    for i, row in enumerate(rows):
        *path, name = row.name.split(".")
        owner = module.get_submodule(".".join(path))
        type_ = torch.float64 if row.double else kind
        if values is None:
            value = torch.empty(row.sizes, dtype=type_, device="meta")
        else:
            value = values[i].to(device=place, dtype=type_)
        if row.trained:
            owner.register_parameter(name, nn.Parameter(value))
        else:
            owner.register_buffer(name, value)


def is_sharded(x: Tensor) -> bool:
    """Whether it is a DTensor, as fully_shard makes them; without importing them."""
    return hasattr(x, "device_mesh")


@torch.no_grad()
def reset(module: nn.Module, rows: Sequence[Row], values: Sequence[Tensor]) -> None:
    """Puts the values into the tensors; into sharded ones those of the first process."""
    for row, value in zip(rows, values, strict=True):
        own: Any = get(module, row.name)
        if is_sharded(own):
            from torch.distributed.tensor import distribute_tensor

            value = distribute_tensor(value.to(own.device, own.dtype), own.device_mesh, own.placements)
        own.copy_(value)


def whole(x: Tensor) -> Tensor:
    """All of a sharded tensor, which every process must ask for."""
    full: Tensor = x.full_tensor() if is_sharded(x) else x  # type: ignore[attr-defined]
    return full.detach()
