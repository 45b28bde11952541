"""docs/python.md: its examples run in order, and its table is the list."""

import re
from pathlib import Path

import pytest

from horner.nn._list import mixers

PAGE = Path(__file__).resolve().parents[2] / "docs/python.md"


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) == 6
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)


def test_the_table_of_classes_is_the_list() -> None:
    rows = re.findall(r"^\| `horner\.nn\.(\w+)` \| (\w+) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(row.title, row.name) for row in mixers()]
