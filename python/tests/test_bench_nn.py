"""tools/bench_train_nn.py, as docs/bench.md calls it, at a tiny size."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HORNER_LIBRARY", ""))
SMALL = {"D": 16, "layers": 2, "heads": 2, "mlp_dim": 32, "vocabulary": 16, "B": 2, "T": 8, "steps": 2}


def run(most: float) -> subprocess.CompletedProcess[str]:
    (block,) = re.findall(r"^```shell\n(.*?)^```$", (ROOT / "docs/bench.md").read_text(), re.MULTILINE | re.DOTALL)
    words = shlex.split(block.replace("\\\n", " "))
    assert words[2:4] == ["python", "tools/bench_train_nn.py"]
    for i, word in enumerate(words):
        if word.removeprefix("--") in SMALL:
            words[i + 1] = str(SMALL[word.removeprefix("--")])
    words[words.index("--device") + 1] = "cpu"
    command = [sys.executable, ROOT / words[3], *words[4:], "--steps", "2", "--rounds", "1", "--json", "--most", str(most)]
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": path})


@pytest.mark.skipif(not (BUILD / "horner").is_file(), reason="HORNER_LIBRARY holds no program")
def test_both_sides_are_timed() -> None:
    done = run(1e9)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["mixer"] for row in rows] == ["softmax", "gla"]
    for row in rows:
        assert row["ratio"] == row["python_milliseconds"] / row["cpp_milliseconds"] > 0 and row["parameters"] > 1000
    assert run(0).returncode == 4
