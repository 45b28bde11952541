"""What transformers learns from `import horner`: our model folders, and attn_implementation="horner".

Only imported when transformers is (horner/_after_import.py).
"""

import os
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from horner import folder
from horner.nn import Model


class HornerConfig(PreTrainedConfig):
    """config.json of a Horner model; `horner` holds the settings of horner.nn.Model."""

    model_type = "horner"

    def __init__(self, horner: dict[str, Any] | None = None, **more: Any) -> None:
        self.horner = horner or {}
        o = self.horner
        names = {"vocab_size": "vocabulary", "hidden_size": "D", "num_hidden_layers": "layers"}
        for name, own in names.items():
            if own in o:
                more[name] = o[own]
        more["tie_word_embeddings"] = False  # the model ties them itself
        super().__init__(**more)


class HornerCache:
    """The state of the model as transformers hands it from step to step."""

    is_compileable = False  # generate() asks
    is_croppable = False

    def __init__(self, state: list[list[Tensor]], seen: int) -> None:
        self.state, self.seen = state, seen

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.seen

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Row i goes on from what row beam_idx[i] has read."""
        self.state = [[part.index_select(0, beam_idx.to(part.device)) for part in layer] for layer in self.state]

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.state = [[part.repeat_interleave(repeats, 0) for part in layer] for layer in self.state]

    def crop(self, *_: int) -> None:
        raise ValueError("[horner] a state cannot be cut back to an earlier token: keep the cache that was returned there")


class HornerForCausalLM(PreTrainedModel, GenerationMixin):
    """A Horner model as transformers' pipelines, trainers and generate() take it."""

    config_class = HornerConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _is_stateful = True  # a state cannot be cut back to an earlier token
    _no_split_modules = ["Block"]

    def __init__(self, config: HornerConfig) -> None:
        super().__init__(config)
        self.model = Model(**config.horner)
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Model draws its own weights."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def resize_token_embeddings(self, *_: Any, **__: Any) -> None:
        raise ValueError("[horner] the vocabulary is a setting: make a horner.nn.Model(vocabulary=..) and copy the weights")

    def get_input_embeddings(self) -> None:
        return None

    def get_output_embeddings(self) -> None:
        return None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: HornerCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        position_ids: Tensor | None = None,
        **more: Any,
    ) -> CausalLMOutputWithPast:
        """attention_mask (B,T): 0 for padding, which is only taken at the beginning of a sequence or after its end.

        position_ids (B,T): only to say where packed sequences begin, each at 0. logits_to_keep: the last so many, or places.
        num_items_in_batch, shift_labels: of the loss, as a Trainer gives them.
        """
        for name in ("inputs_embeds", "output_hidden_states", "output_attentions"):
            if more.get(name) is not None and more[name] is not False:
                raise ValueError(f"[horner] the model has no {name}")
        B, T = input_ids.shape
        if attention_mask is not None and attention_mask.dim() != 2:
            raise ValueError(f"[horner] attention_mask must be (B,T), got {tuple(attention_mask.shape)}")
        tokens = None if attention_mask is None else attention_mask[:, -T:].bool()
        begins = None
        if position_ids is not None and past_key_values is None and tokens is None:
            begins = _begins(position_ids, B, T)
        keeps = bool(use_cache) or past_key_values is not None
        state = (past_key_values.state if past_key_values else []) if keeps else None
        if begins is not None:
            keeps = False  # a state belongs to one sequence, not to a row of several
            ends = torch.nn.functional.pad(begins, (0, 1), value=B * T).cpu()
            logits, after = self.model(input_ids.flatten()[None], cu_seqlens=ends).view(B, T, -1), []
        elif tokens is None or bool(tokens.all()):
            result = self.model(input_ids, state)
            logits, after = result if keeps else (result, [])
        else:
            if past_key_values is not None:
                raise ValueError("[horner] a batch that goes on from a cache has no padding")
            logits, after = self._packed(input_ids, tokens, keeps)
        if isinstance(logits_to_keep, Tensor):
            logits = logits[:, logits_to_keep]
        elif logits_to_keep:
            logits = logits[:, -logits_to_keep:]
        loss = None
        if labels is not None:
            own = {name: more[name] for name in ("num_items_in_batch", "shift_labels") if name in more}
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=logits.shape[-1], **own)
        seen = T + (past_key_values.seen if past_key_values else 0)
        cache = HornerCache(after, seen) if keeps else None
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache)

    def _packed(self, ids: Tensor, tokens: Tensor, keeps: bool) -> tuple[Tensor, list[list[Tensor]]]:
        """The rows without their padding, as one packed batch; the logits of padding are 0."""
        inside = tokens.flatten().nonzero()[:, 0]
        cu_seqlens = torch.nn.functional.pad(tokens.sum(1).cumsum(0), (1, 0)).cpu()
        y, after = self.model(ids.flatten()[inside][None], [], cu_seqlens=cu_seqlens)
        flat = y.new_zeros(ids.numel(), y.shape[-1]).index_copy(0, inside, y[0])
        return flat.unflatten(0, ids.shape), after if keeps else []

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past_key_values: HornerCache | None = None,
        attention_mask: Tensor | None = None,
        use_cache: bool = True,
        **_: Any,
    ) -> dict[str, Any]:
        seen = past_key_values.seen if past_key_values is not None else 0
        return {
            "input_ids": input_ids[:, seen:],
            "attention_mask": attention_mask if seen == 0 else None,
            "past_key_values": past_key_values,
            "use_cache": use_cache,
        }

    def save_pretrained(self, save_directory: str | os.PathLike[str], **_: Any) -> None:
        """A model folder that the program reads too."""
        folder.save(self.model, save_directory)


def _begins(position_ids: Tensor, B: int, T: int) -> Tensor | None:
    """Where packed sequences begin in the rows one after the other; none: each row is one sequence."""
    places = position_ids.expand(B, T).flatten()
    first = places == 0
    begins = first.nonzero()[:, 0]
    own = torch.arange(B * T, device=places.device)
    start = torch.where(first, own, 0).cummax(0).values
    if not bool(first.view(B, T)[:, 0].all()) or not torch.equal(places, own - start):
        raise ValueError("[horner] position_ids must count from 0 in each sequence")
    return None if len(begins) == B else begins


def register_models() -> None:
    AutoConfig.register("horner", HornerConfig)
    AutoModelForCausalLM.register(HornerConfig, HornerForCausalLM)
