"""Runs that blow up: one line, no checkpoint that is not finite, and the last good one is still there."""

import re
import struct
import tempfile
from array import array
import json
from pathlib import Path

from attacks import target

NAME = "not-finite"
WHAT = "runs whose weights or loss leave the numbers (learning rates up to 10^39, which fp32 cannot hold); one line, and every checkpoint that is left is finite"

SETTINGS = [["--optim.lr", lr, "--optim.clip", clip, "--schedule.kind", "constant", "--checkpoint.every", every]
            for lr in ("1e3", "1e10", "1e20", "1e39") for clip in ("0", "1") for every in ("1", "4")]


def infinities(path: Path) -> int:
    """How many numbers of a safetensors file (fp32) are not finite."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    count = 0
    for name, tensor in header.items():
        if name == "__metadata__" or tensor["dtype"] != "F32":
            continue
        begin, end = tensor["data_offsets"]
        numbers = array("f", data[8 + length + begin:8 + length + end])
        count += sum(1 for x in numbers if not abs(x) < float("inf"))
    return count


def diverged(folder: Path, keep: str) -> str:
    """The last good checkpoint is one at whose weights the loss was finite. The same command goes on from it."""
    words = [str(target.program()), "train", "--task", "mqar:T=16,pairs=2,vocabulary=32,test=16", "--device", "cpu", "--model.D",
             "16", "--train.batch", "8", "--optim.lr", "1e5", "--optim.ema", "0.9", "--checkpoint.every", "1",
             "--checkpoint.keep", keep, "--out", str(folder), "--name", "run"]
    good = ""
    for turn in ("first", "second"):
        done = target.run(words)
        said = re.search(r"step (\d+): the loss is .* last good checkpoint: (\S+/step_0*(\d+));", done.stderr)
        if done.returncode != 1 or not said:
            return f"{turn}: {done.returncode} {done.stderr[-300:]!r}"
        if int(said[3]) >= int(said[1]) or not Path(said[2], "DONE").is_file():
            return f"{turn}: {said[0]}"
        if sorted((folder / "run/checkpoints").glob("step_*"))[-1] != Path(said[2]):
            return f"{turn}: a newer checkpoint than {said[2]} is left"
        if good and f"goes on from step {good}\n" not in done.stderr:
            return f"does not go on from step {good}: {done.stderr[-300:]!r}"
        good = said[3]
    return ""


def attempt(settings: list[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        done = target.run(target.command(Path(folder), *settings))
        files = list(Path(folder).glob("run/checkpoints/step_*/*.safetensors"))
        bad = sum(infinities(path) for path in files)
        if bad:
            return f"{bad} numbers of its checkpoints are not finite"
        if done.returncode == 0:
            result = json.loads((Path(folder) / "run/result.json").read_text())
            return "" if result["test"]["loss"] is not None else "it ended well without a loss"
        return target.one_line(done)


def attack(settings: list[list[str]]) -> tuple[int, list[str]]:
    wrong = [(words, attempt(words)) for words in target.in_time(settings)]
    return len(wrong), [f"{' '.join(words)}: {line}" for words, line in wrong if line]


def run() -> tuple[int, list[str]]:
    tries, failures = attack(SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        results = [diverged(Path(folder) / keep, keep) for keep in ("1", "2")]
    return tries + len(results), failures + [line for line in results if line]
