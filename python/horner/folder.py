"""Models from files: what the program trains or reads, Python opens. What Python saves, the program reads.

>>> model = horner.load("runs/ts")             # doctest: +SKIP
>>> model = horner.load("model.gguf")          # doctest: +SKIP
>>> horner.save(model, "models/mine")          # doctest: +SKIP
"""

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from horner.nn import Model
from horner.nn._tensors import is_sharded, whole

FORMAT_VERSION = 1


def find(path: str | os.PathLike[str]) -> Path:
    """The folder with config.json and model.safetensors: a run's newest whole checkpoint, or the folder itself."""
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: is not a folder")
    if (folder / "checkpoints").is_dir():
        whole = [step for step in (folder / "checkpoints").glob("step_*") if (step / "DONE").is_file()]
        whole = [step for step in whole if step.name.removeprefix("step_").isdigit()]
        if not whole:
            raise FileNotFoundError(f"{folder}: has no whole checkpoint yet")
        folder = max(whole, key=lambda step: int(step.name.removeprefix("step_")))
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: is missing")
    return folder


def _check(folder: Path) -> None:
    """The files are as they were written, if the folder has checksums."""
    done = folder / "DONE"
    text = done.read_text() if done.is_file() else ""
    hashes = json.loads(text).get("xxh128", {}) if text else {}
    for name, expected in hashes.items():
        if not name.startswith("optimizer") and torch.ops.horner.file_hash(str(folder / name)) != expected:
            raise ValueError(f"{folder / name}: is damaged: its checksum is not the one in DONE")


def read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: is not JSON: {error}") from None
    return config if isinstance(config, dict) else {}


def read_options(folder: Path) -> dict[str, Any]:
    """The settings of the model, from config.json."""
    path = folder / "config.json"
    config = read_config(path)
    if not isinstance(config.get("horner"), dict):
        raise ValueError(f"{path}: is not the configuration of a Horner model")
    if config.get("format_version", 0) > FORMAT_VERSION:
        raise ValueError(f"{path}: has format_version {config['format_version']}, this is {FORMAT_VERSION}")
    options: dict[str, Any] = config["horner"]
    return options


def _is_ours(path: Path) -> bool:
    """A run folder, or a folder whose config.json is one of ours."""
    config = path / "config.json"
    return (path / "checkpoints").is_dir() or (config.is_file() and "horner" in read_config(config))


def _read(path: Path, dtype: torch.dtype | None) -> tuple[str, dict[str, Any], dict[str, Tensor]]:
    """The file, for errors; the settings of the model; its tensors."""
    if not _is_ours(path):
        kind = torch.get_default_dtype() if dtype is None else dtype
        text, names, tensors = torch.ops.horner.open_model(str(path), kind)
        return str(path), json.loads(text), dict(zip(names, tensors, strict=True))
    folder = find(path)
    _check(folder)
    file = str(folder / "model.safetensors")
    names, tensors = torch.ops.horner.read_tensors(file)
    return file, read_options(folder), dict(zip(names, tensors, strict=True))


def load(
    path: str | os.PathLike[str],
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Model:
    """A model in eval mode, from any of

    a run folder of `horner train` (its newest checkpoint), a checkpoint, a folder of `save`
    a Hugging Face folder of llama, mistral, qwen2, qwen3, gpt2 or bert
    a GGUF file of one of these; quantised weights become values of `dtype`
    a name of `horner get`, after that command has downloaded it
    """
    file, options, stored = _read(Path(path), dtype)
    model = Model(**options, device="meta")
    own = model.state_dict()
    missing = sorted(own.keys() - stored.keys())
    if missing:
        raise ValueError(f"{file}: {missing[0]} is missing")
    place = torch.get_default_device() if device is None else torch.device(device)
    for name, empty in own.items():
        if stored[name].shape != empty.shape:
            raise ValueError(
                f"{file}: {name} must be {tuple(empty.shape)}, got {tuple(stored[name].shape)}"
            )
        kind = empty.dtype if dtype is None or empty.dtype == torch.float64 else dtype
        stored[name] = stored[name].to(device=place, dtype=kind, copy=True)  # the file may be written again
    model.load_state_dict({name: stored[name] for name in own}, assign=True)
    return model.eval().requires_grad_()


def config_of(model: Model) -> dict[str, Any]:
    """config.json as the program writes it."""
    o = model.options
    kind = str(next(model.parameters()).dtype).removeprefix("torch.")
    return {
        "architectures": ["Horner"],
        "model_type": "horner",
        "format_version": FORMAT_VERSION,
        "hidden_size": o["D"],
        "num_hidden_layers": o["layers"],
        "vocab_size": o["vocabulary"],
        "tie_word_embeddings": o["tied"],
        "max_position_embeddings": o["positions"],
        "torch_dtype": kind,
        "horner": o,
    }


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Writes config.json and model.safetensors into a folder, which the program can read too.

    Of a model that fully_shard has shared out, every process calls it, and the first one writes.
    """
    if not isinstance(model, Model):
        raise TypeError(f"horner.save takes a horner.nn.Model, got {type(model).__name__}")
    own = model.state_dict()
    shared = any(map(is_sharded, own.values()))
    writes = not shared or torch.distributed.get_rank() == 0
    state = {}
    for name, x in own.items():
        full = whole(x)
        if writes:
            state[name] = full.cpu()
    if writes:
        _write(model, state, Path(path))
    if shared:
        torch.distributed.barrier()  # the files are there for all


def _write(model: Model, state: dict[str, Tensor], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.ops.horner.write_tensors(str(folder / "model.safetensors"), list(state), list(state.values()))
    beside = folder / "config.json.tmp"
    beside.write_text(json.dumps(config_of(model), indent=2) + "\n")
    beside.replace(folder / "config.json")
