"""`horner explain --model`: every head of a trained model."""

import json
import math
import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(os.environ.get("HORNER_LIBRARY", "")) / "horner"
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="HORNER_LIBRARY holds no program")


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *map(str, words)], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small runs: softmax and gla in turn, and gla alone."""
    folder = tmp_path_factory.mktemp("models")
    for name, pattern in (("mixed", "softmax:heads=2,gla"), ("gla", "gla")):
        done = run("train", "--task", "byte:data=grammar,T=64", "--model.pattern", pattern, "--model.D", 16,
                   "--schedule.steps", 2, "--eval.examples", 8, "--name", name, "--out", folder)
        assert done.returncode == 0, done.stderr
    return folder


def test_every_softmax_head_is_measured(models: Path, tmp_path: Path) -> None:
    done = run("explain", "--model", models / "mixed", "--T", 48, "--pieces", 3, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == json.loads((tmp_path / "explain.json").read_text())
    assert [(h["layer"], h["head"]) for h in told["heads"]] == [(0, 0), (0, 1)]
    assert told["skipped"] == ["1: gla"] and told["pieces"] == 3
    # Two steps leave the scores near 0: every head is nearly uniform over the t + 1 tokens that it sees.
    uniform = sum(math.log(t + 1) for t in range(48)) / 48
    for head in told["heads"]:
        assert abs(head["distance"] - 47 / 4) < 0.5 and abs(head["entropy"] - uniform) < 0.05
        assert head["inside"] == pytest.approx(1) and head["reach"][-1] == pytest.approx(1)
        assert head["centred_order"] <= 2 and head["series"][-1] < 1e-6
    assert 1 <= len(told["telling"]) <= 6
    assert {path.stem for path in (tmp_path / "plots").iterdir()} >= {"distance", "entropy", "order", "series", "reach"}
    assert "<svg" in (tmp_path / "explain.html").read_text()


def test_a_summary_for_people(models: Path) -> None:
    done = run("explain", "--model", models / "mixed", "--T", 48)
    assert done.returncode == 0 and "Not softmax attention: layers 1: gla." in done.stdout
    assert "its 2 heads" in done.stdout


def test_mistakes_are_one_line(models: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("To be")
    for words, code, line in [
        ((models / "gla",), 3, "no layer is causal softmax attention"),
        (("src/model/formats/goldens/bert",), 3, "is not a language model that reads forwards"),
        ((models / "mixed", "--text", short), 3, "short.txt: has 5 tokens, T = 512 want more text"),
        ((models / "mixed", "--T", 1), 2, "T must be in 2 .. 4096, got 1"),
        ((models / "mixed", "--pieces", 0), 2, "pieces must be at least 1, got 0"),
        ((models / "mixed", "--window", 0), 2, "window must be at least 1, got 0"),
        ((tmp_path / "nothing",), 3, "is no folder, no file and no model"),
    ]:
        done = run("explain", "--model", *words)
        assert done.returncode == code and line in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = run("explain", "gla", "--model", models / "mixed")
    assert done.returncode == 2 and "explain takes one of" in done.stderr
