"""Writes python/horner/nn/__init__.pyi from the list of mixers; --check says whether it is current.

    HORNER_LIBRARY=build/PRESET PYTHONPATH=python python tools/stubs.py
"""

import argparse
import sys
from pathlib import Path

from horner.nn import Model
from horner.nn._list import Setting, annotation_of, mixers, model_settings, value_of
from horner.nn._mixer import doc_of

STUB = Path(__file__).resolve().parents[1] / "python/horner/nn/__init__.pyi"
HEAD = '''"""Written by tools/stubs.py from the list of mixers."""

from collections.abc import Sequence
from typing import Literal

import torch

from horner.nn._mixer import Mixer as Mixer
from horner.nn._model import Block as Block
from horner.nn._model import Model as _Model

'''
COMMON = [
    "seed: int | None = None",
    "device: torch.device | str | None = None",
    "dtype: torch.dtype | None = None",
]


def default_of(setting: Setting) -> str:
    return repr(value_of(setting)).replace("'", '"')


def class_text(name: str, base: str, doc: str, first: list[str], settings: tuple[Setting, ...]) -> str:
    own = [f"{s.keyword}: {annotation_of(s)} = {default_of(s)}" for s in settings]
    arguments = ["self", *first, "*", *own, *COMMON]
    lines = [f"class {name}({base}):"]
    lines += ['    """' + doc.strip().replace("\n", "\n    ").replace("    \n", "\n"), '    """', ""]
    lines += ["    def __init__(", *(f"        {argument}," for argument in arguments), "    ) -> None: ..."]
    return "\n".join(lines) + "\n"


def stub() -> str:
    classes = [class_text(row.title, "Mixer", doc_of(row), ["D: int"], row.settings) for row in mixers()]
    classes.append(class_text("Model", "_Model", str(Model.__doc__), [], model_settings()))
    names = sorted(["Block", "Mixer", "Model", *(row.title for row in mixers())])
    listed = "\n".join(f'    "{name}",' for name in names)
    return HEAD + f"__all__ = [\n{listed}\n]\n\n" + "\n".join(classes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is not current")
    if not parser.parse_args().check:
        STUB.write_text(stub())
        return 0
    current = STUB.read_text() == stub()
    if not current:
        print(f"{STUB}: is not current; run tools/stubs.py", file=sys.stderr)
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
