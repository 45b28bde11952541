"""A mixer as a torch.nn.Module. Python owns the parameters; the library gets them at each call."""

import inspect
import json
import operator
from collections.abc import Sequence
from typing import Any, overload

import torch
from torch import Tensor, nn

from horner.nn import _list, _tensors
from horner.ops import Form


class Mixer(nn.Module):
    """Any mixer of the list by its spec: Mixer("gla:heads=8", 512). (B,T,D) -> (B,T,D), B and T at least 1.

    y = layer(x)                 a sequence from its beginning
    y, state = layer(x, [])      the same, and what the next tokens need of the past
    y, state = layer(x, state)   the tokens after those; x may have any length
    y, state = layer.step(x, state)    one token: x and y are (B,D)
    layer.map(x)                 (B,H,T,T): the weight with which token t reads the value of token s

    Parameters have the names of our safetensors, and for a seed the initial values of the C++ program.
    """

    def __init__(
        self,
        spec: str,
        D: int,
        *,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.D = operator.index(D)
        layout = json.loads(torch.ops.horner.mixer_layout(spec, self.D))
        self.options: dict[str, Any] = layout["options"]
        self.causal: bool = layout["causal"]
        self._rows = _tensors.rows_of(layout["tensors"])
        _tensors.own(self, self._rows, lambda: self._initial(seed), device, dtype)

    def _initial(self, seed: int | None) -> list[Tensor]:
        seed = _tensors.new_seed() if seed is None else seed
        values: list[Tensor] = torch.ops.horner.mixer_initial(self.spec, self.D, seed)
        return values

    def reset_parameters(self, seed: int | None = None) -> None:
        """Draws the initial values again: the second half of an initialisation on the meta device."""
        _tensors.reset(self, self._rows, self._initial(seed))

    def _tensor_list(self) -> list[Tensor]:
        return [getattr(self, row.name) for row in self._rows]

    @overload
    def forward(
        self,
        x: Tensor,
        state: None = None,
        cu_seqlens: Tensor | None = None,
        *,
        form: Form = "auto",
        chunk: int = 64,
        window: int | None = None,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        state: Sequence[Tensor],
        cu_seqlens: Tensor | None = None,
        *,
        form: Form = "auto",
        chunk: int = 64,
        window: int | None = None,
    ) -> tuple[Tensor, list[Tensor]]: ...

    def forward(
        self,
        x: Tensor,
        state: Sequence[Tensor] | None = None,
        cu_seqlens: Tensor | None = None,
        *,
        form: Form = "auto",
        chunk: int = 64,
        window: int | None = None,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """x (B,T,D) -> y (B,T,D); with a state, [] at the beginning, also the state after the last token.

        cu_seqlens   (n+1) ints: a packed batch, B = 1; the state then has n rows
        form, chunk  as for the ops
        window       of the mixer `window`, for this call
        """
        y, after = torch.ops.horner.mixer_forward(
            self.spec,
            x,
            self._tensor_list(),
            state,
            cu_seqlens,
            form=form,
            chunk=chunk,
            window=window,
            final_state=state is not None,
        )
        return y if state is None else (y, after)

    def step(self, x: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """One token of each row: x (B,D) -> y (B,D) and the state after it."""
        y, after = self(x.unsqueeze(1), state)  # with the hooks of forward: fully_shard gathers the tensors in one
        return y.squeeze(1), after

    def map(self, x: Tensor) -> Tensor:
        """(B,H,T,T): the weight with which token t reads the value of token s."""
        weights: Tensor = torch.ops.horner.mixer_map(self.spec, x, self._tensor_list())
        return weights

    def extra_repr(self) -> str:
        return f"{self.spec!r}, D={self.D}"


def class_of(row: _list.MixerType) -> type[Mixer]:
    """The class of one row of the list: GLA(D, heads=8)."""

    def __init__(
        self: Mixer,
        D: int,
        *,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **settings: object,
    ) -> None:
        spec = _list.spec_of(row.name, row.settings, settings)
        Mixer.__init__(self, spec, D, seed=seed, device=device, dtype=dtype)

    common = list(inspect.signature(Mixer.__init__).parameters.values())
    __init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [common[0], common[2], *_list.parameters(row.settings), *common[3:]]
    )
    __init__.__qualname__ = f"{row.title}.__init__"
    __init__.__module__ = "horner.nn"
    names = {"__init__": __init__, "__doc__": doc_of(row), "__module__": "horner.nn"}
    return type(row.title, (Mixer,), names)


def doc_of(row: _list.MixerType) -> str:
    """The docstring of a class: the equation and the settings."""
    head = f"The mixer `{row.name}` (arXiv:{row.paper}), (B,T,D) -> (B,T,D)."
    return f"{head}\n\n    {row.equation}\n\n{_list.table(row.settings)}\n"
