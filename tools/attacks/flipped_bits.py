"""Damaged files of a run."""

import json
import random
import shutil
import tempfile
from pathlib import Path

from attacks import target
from attacks.target import command, outcome

NAME = "flipped_bits"
WHAT = ("a bit of a file of the newest checkpoint is flipped, or the file is cut or gone; the note names the file, and the run "
        "goes on from the checkpoint before, with the same bits")


def damage(path: Path, how: str, dice: random.Random) -> None:
    data = bytearray(path.read_bytes() or b" ")
    if how == "flip":
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)
    elif how == "cut":
        path.write_bytes(data[:dice.randrange(len(data.rstrip()))])  # without its last newline DONE says the same
    else:
        path.unlink()


def attack(rounds: int) -> tuple[int, list[str]]:
    tries, failures, dice = 0, [], random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = folder / "whole"
        target.run(command(whole))
        wanted = outcome(whole)
        files = [path.name for path in sorted((whole / "run/checkpoints").iterdir())[-1].iterdir()]
        for number in target.in_time(range(rounds)):
            for file in sorted(files):
                for how in ("flip", "cut", "gone"):
                    if (file, how) == ("DONE", "gone"):
                        continue  # then it is no checkpoint
                    tries += 1
                    out = folder / f"{number}_{file}_{how}"
                    shutil.copytree(whole, out)
                    (out / "run/result.json").unlink()
                    damage(sorted((out / "run/checkpoints").iterdir())[-1] / file, how, dice)
                    done = target.run(command(out))
                    said = f"/{file}" in done.stderr if file != "DONE" else "/step_" in done.stderr
                    if done.returncode != 0 or not said:
                        failures.append(f"{file} {how}: {done.returncode} {done.stderr[-300:]!r}")
                    elif outcome(out) != wanted:
                        failures.append(f"{file} {how}: other numbers")
                    shutil.rmtree(out)
    return tries, failures


def old_run(whole: Path, out: Path) -> None:
    """A copy of a run as it was written before versions were counted."""
    shutil.copytree(whole, out)
    (out / "run/result.json").unlink()
    (out / "run/lock").unlink()
    env = json.loads((out / "run/env.json").read_text())
    for key in ("format_version", "tokenizer"):
        env.pop(key)
    (out / "run/env.json").write_text(json.dumps(env))
    for checkpoint in (out / "run/checkpoints").iterdir():
        (checkpoint / "DONE").write_text("")
        for file, keys in (("trainer.json", ("format_version", "belongs", "unscored")), ("config.json", ("format_version",))):
            content = json.loads((checkpoint / file).read_text())
            for key in keys:
                content.pop(key)
            (checkpoint / file).write_text(json.dumps(content))


def run() -> tuple[int, list[str]]:
    return attack(rounds=10)
