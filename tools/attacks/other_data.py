"""Other data under the same name."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Callable

from attacks import target
from attacks.target import one_line, program

NAME = "other_data"
WHAT = ("the file of a text run is edited, replaced or comes from another HORNER_DATA, or the weights that it begins with are "
        "others; a run with a name is refused and the file named, a run without one, a comparison and a reproduction become "
        "other runs; the same bytes elsewhere are the same run")

Attack = Callable[[Path], str]  # empty, or what went wrong

TINY = ["--device", "cpu", "--model.D", "16", "--train.batch", "4", "--schedule.steps", "2", "--eval.examples", "4"]
TEXT = "The quick brown fox jumps over the lazy dog. " * 200


def train(folder: Path, data: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    words = [str(program()), "train", "--task", "byte:data=book.txt,T=32", "--out", str(folder / "out"), *TINY,
             "--no-log.tensorboard", *more]
    return target.run(words, env={"HORNER_DATA": str(data)}, cwd=folder)


def make(folder: Path, name: str, text: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "book.txt").write_text(text)
    return folder / name


def named(folder: Path) -> str:
    one, same, other = (make(folder, n, t) for n, t in (("one", TEXT), ("same", TEXT), ("other", TEXT.replace("fox", "cat"))))
    first, again = train(folder, one, "--name", "run"), train(folder, same, "--name", "run")
    if first.returncode or again.returncode:
        return f"the same bytes: {first.stderr[-200:]}{again.stderr[-200:]}"
    refused = train(folder, other, "--name", "run")
    if one_line(refused) or "book.txt" not in refused.stderr or "other data" not in refused.stderr:
        return f"other data under a name: exit code {refused.returncode}, {refused.stderr[-300:]!r}"
    (one / "book.txt").write_text(TEXT + "More.")
    refused = train(folder, one, "--name", "run")
    return "" if refused.returncode and "book.txt" in refused.stderr else f"edited: {refused.returncode} {refused.stderr!r}"


def unnamed(folder: Path) -> str:
    one, same, other = (make(folder, n, t) for n, t in (("one", TEXT), ("same", TEXT), ("other", TEXT.replace("fox", "cat"))))
    counts = []
    for data in (one, same, other):
        train(folder, data)
        counts.append(len(list((folder / "out").iterdir())))
    return "" if counts == [1, 1, 2] else f"runs after the same and after other data: {counts}"


def compared(folder: Path) -> str:
    one, other = make(folder, "one", TEXT), make(folder, "other", TEXT.replace("fox", "cat"))
    words = [str(program()), "compare", "linear", "--task", "byte:data=book.txt,T=32", "--out", str(folder / "out"), *TINY,
             "--seeds", "1", "--jobs", "1", "--speed_lengths", "[]"]
    for data in (one, other):
        done = target.run(words, env={"HORNER_DATA": str(data)}, cwd=folder)
        if done.returncode:
            return f"compare: {done.stderr[-300:]}"
    count = len(list((folder / "out/runs").iterdir()))
    return "" if count == 2 else f"compare: {count} run for two texts"


def reproduced(folder: Path) -> str:
    """A claim whose runs read the texts of HORNER_DATA."""
    counts = []
    for data, runs, text in (
        ("one", "runs", TEXT), ("same", "runs", TEXT),
        ("other", "runs", TEXT.replace("fox", "cat")), ("another", "alone", TEXT.replace("fox", "cat")),
    ):
        here = make(folder, data, text * 4)
        done = target.run(
            [str(program()), "reproduce", "metala", "--claim", "ablation", "--device", "cpu", "--steps", "1", "--seeds", "1",
             "--runs", str(folder / runs), "--out", str(folder / "out" / runs)],
            env={"HORNER_DATA": str(here)}, cwd=folder, seconds=300)
        if done.returncode:
            return f"reproduce: {done.stderr[-300:]}"
        counts.append(len(list((folder / runs).iterdir())))
    good = counts[0] == counts[1] and counts[2] == counts[0] + counts[3]  # other data share no run
    return "" if good else f"reproduce: runs of a text, again, with another text beside it, of that alone: {counts}"


def begun(folder: Path) -> str:
    """Weights to begin with are data as well: a run that began with others is another run."""
    data = make(folder, "one", TEXT)
    names = []
    for seed in ("1", "1", "2"):
        shutil.rmtree(folder / "out/first", ignore_errors=True)
        train(folder, data, "--name", "first", "--seed", seed)
        named_run = train(folder, data, "--from", str(folder / "out/first"), "--name", "second")
        train(folder, data, "--from", str(folder / "out/first"))
        names.append(len(list((folder / "out").iterdir())))
        if seed == "1" and named_run.returncode:
            return f"the same weights: {named_run.stderr[-200:]}"
    if one_line(named_run) or "model.safetensors" not in named_run.stderr:
        return f"other weights under a name: exit code {named_run.returncode}, {named_run.stderr[-300:]!r}"
    return "" if names == [3, 3, 4] else f"runs after the same and after other weights: {names}"


def run() -> tuple[int, list[str]]:
    attacks = (named, unnamed, compared, reproduced, begun)
    with tempfile.TemporaryDirectory() as name:
        failures = [attack(Path(name) / attack.__name__) for attack in attacks]
    return 13, [line for line in failures if line]
