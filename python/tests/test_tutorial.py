"""docs/tutorial.md: its pieces run in order, and give the losses that the page states."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="no transformers")

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/tutorial.md").read_text()


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, Any] = {}
    threads = torch.get_num_threads()
    pieces = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(pieces) == 8
    for piece in pieces:
        exec(compile(piece, "docs/tutorial.md", "exec"), names)
    torch.set_num_threads(threads)
    measured = [names["softmax"], *(names["taylor"][order] for order in (0, 2, 4)), names["gla"]]
    stated = [float(number) for number in re.findall(r"^\| the .* \| ([\d.]+) \|$", PAGE, re.MULTILINE)]
    assert measured == pytest.approx(stated, abs=0.06)
    state_bytes, said = names["state_bytes"], capsys.readouterr().out
    assert re.findall(r"tokens: (\d+) bytes", said) == [str(state_bytes)] * 2  # after 10 tokens and after 200
    assert f"The state of gla is {state_bytes:,} bytes here" in PAGE

    # What the state writes is what the whole model writes when it reads everything again for each token.
    model = names["recurrent"]
    tokens = torch.tensor([list(b"ROMEO:")])
    for _ in range(10):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
    assert names["write"](model, b"ROMEO:", 10)[0] == bytes(tokens[0].tolist())
