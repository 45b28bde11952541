"""Lost lines of metrics.jsonl."""

import random
import shutil
import tempfile
from pathlib import Path

from attacks import target
from attacks.target import command, outcome

NAME = "metrics_loss"
WHAT = ("metrics.jsonl is cut, zeroed from some byte on, or gone; the newest checkpoint goes on to the same weights, and a note "
        "says how many lines are missing")


def attack(rounds: int) -> tuple[int, list[str]]:
    tries, failures, dice = 0, [], random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        whole = Path(name) / "whole"
        target.run(command(whole))
        for number in target.in_time(range(rounds)):
            for how in ("cut", "zeros", "gone"):
                tries += 1
                out = Path(name) / f"{number}_{how}"
                shutil.copytree(whole, out)
                (out / "run/result.json").unlink()
                path = out / "run/metrics.jsonl"
                data = path.read_bytes()
                place = dice.randrange(len(data) // 2)
                path.write_bytes(data[:place] + (bytes(len(data) - place) if how == "zeros" else b""))
                if how == "gone":
                    path.unlink()
                done = target.run(command(out))
                if done.returncode != 0 or "lines before the checkpoint are missing" not in done.stderr:
                    failures.append(f"{how} at {place}: {done.returncode} {done.stderr[-300:]!r}")
                elif outcome(out)[1] != outcome(whole)[1]:
                    failures.append(f"{how} at {place}: other weights")
    return tries, failures


def run() -> tuple[int, list[str]]:
    return attack(rounds=20)
