"""A whole model: a pattern of mixers between an embedding and a head, as C++'s Model."""

import inspect
import json
from collections.abc import Sequence
from typing import Any, overload

import torch
from torch import Tensor, nn

from horner.nn import _list, _tensors
from horner.nn._mixer import Mixer
from horner.ops import Form

State = Sequence[Sequence[Tensor]]


def nested(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}


class Block(nn.Module):
    """One layer: x += mixer(norm(x)), then x += mlp(norm(x)).

    What the layer adds last is handed on as `delta`, so that the next layer computes the sum and its norm in one pass.
    """

    def __init__(self, options: str, layer: int, mixer: Mixer, rows: Sequence[_tensors.Row]) -> None:
        super().__init__()
        self.options, self.layer = options, layer
        self.mixer = mixer
        self._spec = mixer.spec
        self._rows = tuple(rows)

    def forward(
        self,
        x: Tensor,
        delta: Tensor | None = None,
        state: Sequence[Tensor] | None = None,
        cu_seqlens: Tensor | None = None,
        *,
        form: Form = "auto",
        chunk: int = 64,
        window: int | None = None,
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """x (B,T,D) -> (x, delta, state after): the layer's output is x + delta, or x if there is none."""
        if getattr(self.mixer, "spec", None) != self._spec:
            raise ValueError(
                f"[model] layer_{self.layer} runs {self._spec}: its mixer cannot be replaced; make a Model with another pattern"
            )
        result: tuple[Tensor, Tensor | None, list[Tensor]] = torch.ops.horner.block_forward(
            self.options,
            self.layer,
            x,
            delta,
            [_tensors.get(self, row.name) for row in self._rows],
            state,
            cu_seqlens,
            form=form,
            chunk=chunk,
            window=window,
            train=self.training,
            final_state=state is not None,
        )
        return result


class Model(nn.Module):
    """A model of mixers: Model(pattern=["gla:heads=4"], layers=4, D=256, vocabulary=32000).

    logits = model(tokens)               (B,T) -> (B,T,vocabulary), as the head says
    logits, state = model(tokens, [])    the same, and the state after the last token
    logits, state = model(more, state)   the tokens after those
    loss = model.loss(tokens, targets)   mean cross entropy, without ever holding all logits

    A state is one list of tensors per layer; row b of every tensor belongs to row b of the batch.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.options_json = json.dumps(nested(settings))
        layout = json.loads(torch.ops.horner.model_layout(self.options_json))
        self.options: dict[str, Any] = layout["options"]
        self.options_json = json.dumps(self.options)
        self.causal: bool = layout["causal"]
        self._rows = _tensors.rows_of(layout["tensors"])
        self._ends = [row.name for row in self._rows if not row.name.startswith("layer_")]
        for i, spec in enumerate(layout["mixers"]):
            prefix = f"layer_{i}."
            rows = [
                _tensors.Row(row.name.removeprefix(prefix), row.sizes, row.double, row.trained)
                for row in self._rows
                if row.name.startswith(prefix)
            ]
            mixer = Mixer(spec, self.options["D"], device="meta")  # its tensors are made below
            self.add_module(f"layer_{i}", Block(self.options_json, i, mixer, rows))
        _tensors.own(self, self._rows, lambda: self._initial(seed), device, dtype)

    @property
    def layers(self) -> list[Block]:
        blocks = [getattr(self, f"layer_{i}") for i in range(self.options["layers"])]
        return blocks

    def _initial(self, seed: int | None) -> list[Tensor]:
        seed = _tensors.new_seed() if seed is None else seed
        values: list[Tensor] = torch.ops.horner.model_initial(self.options_json, seed)
        return values

    def reset_parameters(self, seed: int | None = None) -> None:
        """Draws the initial values again: the second half of an initialisation on the meta device."""
        _tensors.reset(self, self._rows, self._initial(seed))

    def _end_tensors(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._ends]

    def _run(
        self,
        input: Tensor,
        state: State | None,
        lengths: Tensor | None,
        cu_seqlens: Tensor | None,
        logits: bool,
        **how: Any,
    ) -> tuple[Tensor, list[list[Tensor]]]:
        keeps = state is not None
        L = self.options["layers"]
        if state is not None and lengths is not None:
            raise ValueError("[model] lengths have no state, which would read the padding: take cu_seqlens")
        if state is not None and len(state) not in (0, L, L + 1):
            raise ValueError(f"[model] a state has {L} lists, one for each layer, got {len(state)}")
        seen = state[L] if state and len(state) > L else []
        x, seen_after = torch.ops.horner.model_begin(
            self.options_json,
            input,
            self._end_tensors(),
            seen[0] if seen else None,
            cu_seqlens,
            train=self.training,
            final_state=keeps,
        )
        inside = None
        shape = x.shape
        if lengths is not None and not self.causal:  # without padding: both directions would read it
            counts = lengths.to(x.device, torch.int64)
            inside = (torch.arange(shape[1], device=x.device) < counts[:, None]).flatten().nonzero()[:, 0]
            x = x.flatten(0, 1)[inside][None]
            cu_seqlens = nn.functional.pad(counts.cumsum(0), (1, 0)).cpu()
        delta: Tensor | None = None
        after: list[list[Tensor]] = []
        for i in range(L):
            before = (state[i] if state else []) if state is not None else None
            x, delta, own = getattr(self, f"layer_{i}")(x, delta, before, cu_seqlens, **how)
            after.append(own)
        if inside is not None:
            empty = torch.zeros(shape, dtype=x.dtype, device=x.device).flatten(0, 1)
            x, delta = empty.index_copy(0, inside, (x if delta is None else x + delta)[0]).view(shape), None
        y = torch.ops.horner.model_end(
            self.options_json, x, delta, self._end_tensors(), lengths, logits=logits
        )
        return y, [*after, list(seen_after)]

    @overload
    def forward(
        self,
        input: Tensor,
        state: None = None,
        *,
        lengths: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        form: Form = "auto",
        chunk: int = 64,
        window: int | None = None,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        input: Tensor,
        state: State,
        *,
        lengths: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        form: Form = "auto",
        chunk: int = 64,
        window: int | None = None,
    ) -> tuple[Tensor, list[list[Tensor]]]: ...

    def forward(
        self,
        input: Tensor,
        state: State | None = None,
        *,
        lengths: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        form: Form = "auto",
        chunk: int = 64,
        window: int | None = None,
    ) -> Tensor | tuple[Tensor, list[list[Tensor]]]:
        """tokens (B,T), or features (B,T,d) -> logits; with a state, [] at the beginning, also the state after.

        lengths      (B): tokens of each row; what follows is padding
        cu_seqlens   (n+1): a packed batch, B = 1
        """
        y, after = self._run(
            input, state, lengths, cu_seqlens, True, form=form, chunk=chunk, window=window
        )
        return y if state is None else (y, after)

    def hidden(self, input: Tensor, *, lengths: Tensor | None = None) -> Tensor:
        """What the head reads: (B,T,D), or (B,D) of a classifier."""
        return self._run(input, None, lengths, None, False)[0]

    def loss(self, input: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy of the targets that are at least 0. targets: (B,T), or (B) of a classifier."""
        flat = targets.flatten()
        total: Tensor = torch.ops.horner.model_loss(
            self.options_json,
            self.hidden(input).flatten(0, -2),
            flat,
            self._end_tensors(),
        )
        return total / (flat >= 0).sum()

    def extra_repr(self) -> str:
        return f"pattern={self.options['pattern']}, D={self.options['D']}"



Model.__doc__ = f"{Model.__doc__}\n{_list.table(_list.model_settings())}\n"
_own = inspect.signature(Model.__init__).parameters
Model.__init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [_own["self"], *_list.parameters(_list.model_settings()), *list(_own.values())[1:-1]]
)
