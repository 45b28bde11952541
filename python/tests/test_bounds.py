"""Settings and files beyond every bound are refused in one line; a run that blows up leaves good checkpoints."""

import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from attacks import bounds, hostile_files, not_finite  # noqa: E402


@pytest.mark.parametrize("words, expected", bounds.CASES, ids=[" ".join(words)[-60:] for words, _ in bounds.CASES])
def test_is_refused_in_one_line(words: list[str], expected: str) -> None:
    assert bounds.attempt(words, expected) == ""


@pytest.mark.parametrize("make, expected", [case[1:] for case in hostile_files.CASES], ids=[case[0] for case in hostile_files.CASES])
def test_hostile_file_is_refused_in_one_line(make: Callable[[Path], list[str]], expected: str) -> None:
    assert hostile_files.attempt(make, expected) == ""


@pytest.mark.parametrize("settings", [not_finite.SETTINGS[5], not_finite.SETTINGS[-2]], ids=["1e10", "1e39"])
def test_checkpoints_stay_finite(settings: list[str]) -> None:
    assert not_finite.attempt(settings) == ""


@pytest.mark.parametrize("keep", ["1", "2"])
def test_the_last_good_checkpoint_is_good(keep: str, tmp_path: Path) -> None:
    assert not_finite.diverged(tmp_path, keep) == ""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small language model in a folder without checksums."""
    (tmp_path / "text.txt").write_text("What is written is read. " * 200)
    bounds.target.run([str(bounds.target.program()), "train", "--task", f"byte:data={tmp_path}/text.txt,T=16", "--model.D", "16",
                       "--schedule.steps", "1", "--eval.examples", "4", "--device", "cpu", "--out", str(tmp_path), "--name", "run"])
    (folder,) = (tmp_path / "run/checkpoints").iterdir()
    (folder / "DONE").unlink()
    return folder.rename(tmp_path / "model")


def test_a_model_of_nans_is_refused(model: Path, tmp_path: Path) -> None:
    weights = (model / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(weights[:8], "little")
    (model / "model.safetensors").write_bytes(weights[:start] + struct.pack("<f", float("nan")) * ((len(weights) - start) // 4))
    text = str(tmp_path / "text.txt")
    for words in (["--checkpoint", str(model), "--T", "16"], ["--model", str(model), "--T", "16", "--text", text]):
        done = bounds.target.run([str(bounds.target.program()), "explain", *words])
        assert done.returncode == 1 and "not finite: a weight" in done.stderr.splitlines()[-1]


def test_an_unknown_host_is_named(model: Path) -> None:
    done = bounds.target.run([str(bounds.target.program()), "serve", str(model), "--host", "foo.invalid", "--port", "18233"])
    assert done.returncode == 1 and "cannot listen on foo.invalid:18233: " in done.stderr
    assert "Success" not in done.stderr


def test_dry_run_of_a_model_that_does_not_fit(tmp_path: Path) -> None:
    words = [str(bounds.target.program()), *bounds.TRAIN, "--model.layers", "60000", "--model.D", "8192", "--dry-run"]
    done = bounds.target.run(words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "parameters" in done.stdout and not any(tmp_path.iterdir())
