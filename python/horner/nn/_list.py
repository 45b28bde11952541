"""THE list of mixers as the library holds it: names, settings, equations. Nothing is written twice."""

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Setting:
    """A setting of a mixer or a model, from the visitor of its C++ struct."""

    name: str  # "position.kind"
    type: str  # "text", "number", ..
    initial: str
    help: str
    choices: tuple[str, ...]

    @property
    def keyword(self) -> str:
        """The setting as an argument in Python: position_kind."""
        return self.name.replace(".", "_")


@dataclass(frozen=True)
class MixerType:
    """A row of the list."""

    name: str  # "gla"
    title: str  # "GLA"
    paper: str  # arXiv id
    equation: str
    variants: tuple[str, ...]  # settings that tests walk
    settings: tuple[Setting, ...]


def _settings(rows: list[dict[str, Any]]) -> tuple[Setting, ...]:
    return tuple(Setting(**row | {"choices": tuple(row["choices"])}) for row in rows)


@functools.cache
def mixers() -> tuple[MixerType, ...]:
    rows = json.loads(torch.ops.horner.mixers())
    return tuple(
        MixerType(**row | {"variants": tuple(row["variants"]), "settings": _settings(row["settings"])})
        for row in rows
    )


@functools.cache
def model_settings() -> tuple[Setting, ...]:
    return _settings(json.loads(torch.ops.horner.model_settings()))


def text_of(value: object) -> str:
    """A value as the text of a spec: true, none, 0.5, [1,2]."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(text_of, value)) + "]"
    return str(value)


def spec_of(name: str, settings: tuple[Setting, ...], values: Mapping[str, object]) -> str:
    """name:setting=value,..  An unknown keyword goes through as it is: the library names the nearest known setting."""
    names = {setting.keyword: setting.name for setting in settings}
    items = [f"{names.get(key, key)}={text_of(value)}" for key, value in values.items()]
    return f"{name}:{','.join(items)}" if items else name


# The type of a setting, as the library names it: its annotation, and its text as a value.
_TYPES: dict[str, tuple[str, Callable[[str], object]]] = {
    "boolean": ("bool", lambda text: text == "true"),
    "integer": ("int", int),
    "number": ("float", float),
    "text": ("str", str),
}


def value_of(setting: Setting) -> object:
    """The default of a setting as a Python value."""
    if setting.initial == "none" and setting.type.endswith(" or none"):
        return None
    if setting.type.startswith("list of "):
        one = _TYPES[setting.type.removeprefix("list of ").removesuffix("s")][1]
        return tuple(one(item) for item in setting.initial.strip("[]").split(",") if item)
    return _TYPES[setting.type.removesuffix(" or none")][1](setting.initial)


def annotation_of(setting: Setting) -> str:
    """The type of a setting as the text of an annotation."""
    if setting.choices and setting.type == "text":
        return f"Literal[{', '.join(repr(choice).replace(chr(39), chr(34)) for choice in setting.choices)}]"
    if setting.type.startswith("list of "):
        return f"Sequence[{_TYPES[setting.type.removeprefix('list of ').removesuffix('s')][0]}]"
    optional = " | None" if setting.type.endswith(" or none") else ""
    return _TYPES[setting.type.removesuffix(" or none")][0] + optional


def parameters(settings: Sequence[Setting]) -> list[inspect.Parameter]:
    """The settings as keyword arguments of a signature."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(s.keyword, kind, default=value_of(s)) for s in settings]


def table(settings: Sequence[Setting]) -> str:
    """One line per setting, for a docstring."""
    width = max(len(s.keyword) for s in settings)
    lines = []
    for s in settings:
        choices = f" ({', '.join(s.choices)})" if s.choices else ""
        lines.append(f"    {s.keyword:<{width}}  {s.help}{choices}; default {s.initial}")
    return "\n".join(lines)
